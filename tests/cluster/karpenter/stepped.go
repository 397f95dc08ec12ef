package main

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/events"

	"nodevigil.test/stepped"
)

// What a step prints.
type did struct {
	Deleted []string `json:"deleted"`
	// It asked to be called again because too many nodes match.
	Blocked bool `json:"blocked"`
}

// The wait after which the controller asks again when too many nodes match, and at no other time.
const blockedFor = 5 * time.Minute

type stepper struct {
	cluster    ctrl.Manager
	clock      *clocktesting.FakeClock
	controller *health.Controller
	seen       map[string]string
	due        map[string]time.Time
}

// Like its own watch, it looks at a Node that has changed, and at one that it asked to be called again for.
func (s *stepper) look(ctx context.Context, now time.Time) (any, error) {
	s.clock.SetTime(now)
	_, err := stepped.CaughtUp(ctx, s.cluster, &corev1.NodeList{}, &v1.NodeClaimList{}, &v1.NodePoolList{})
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := s.cluster.GetClient().List(ctx, nodes); err != nil {
		return nil, err
	}
	answer := did{Deleted: []string{}}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		due, waits := s.due[node.Name]
		if s.seen[node.Name] == node.ResourceVersion && (!waits || now.Before(due)) {
			continue
		}
		s.seen[node.Name] = node.ResourceVersion
		delete(s.due, node.Name)
		result, err := s.controller.Reconcile(ctx, node)
		if err != nil {
			return nil, err
		}
		if result.RequeueAfter > 0 {
			s.due[node.Name] = now.Add(result.RequeueAfter)
		}
		answer.Blocked = answer.Blocked || (!due.IsZero() && result.RequeueAfter == blockedFor)
	}
	claims := &v1.NodeClaimList{}
	if err := s.cluster.GetAPIReader().List(ctx, claims); err != nil {
		return nil, err
	}
	for _, claim := range claims.Items {
		if !claim.DeletionTimestamp.IsZero() {
			answer.Deleted = append(answer.Deleted, claim.Name)
		}
	}
	return answer, nil
}

// Instead of registering the controller with the manager: the manager would wait by the machine's clock.
func step(ctx context.Context, cluster ctrl.Manager, recorder events.Recorder) error {
	clock := clocktesting.NewFakeClock(time.Now())
	steps := &stepper{
		cluster:    cluster,
		clock:      clock,
		controller: health.NewController(cluster.GetClient(), cloud{}, clock, recorder),
		seen:       map[string]string{},
		due:        map[string]time.Time{},
	}
	return stepped.Run(ctx, cluster, os.Stdin, os.Stdout, steps.look)
}
