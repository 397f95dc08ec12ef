// `k3s agent` as far as a node shows it: containerd as a child, and the kubelet inside this process (k3s' pkg/agent/containerd and
// pkg/daemons/executor/embed.go). It joins no cluster: kubeconfig and configuration must be there.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const (
	socket = "/run/k3s/containerd/containerd.sock"
	agent  = "/var/lib/rancher/k3s/agent/"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "agent" {
		log.Fatal("usage: k3s agent [FLAG OF THE KUBELET...]")
	}
	containerd := exec.Command("containerd", "-c", agent+"etc/containerd/config.toml", "-a", socket, "--state", "/run/k3s/containerd",
		"--root", agent+"containerd")
	containerd.Stdout, containerd.Stderr = os.Stdout, os.Stderr
	containerd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	go func() { log.Fatalf("containerd exited: %v", containerd.Run()) }()
	for { // as k3s waits for the CRI
		if connection, err := net.Dial("unix", socket); err == nil {
			connection.Close()
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() { <-ctx.Done(); os.Exit(0) }()
	command := kubelet.NewKubeletCommand(ctx)
	command.SetArgs(append([]string{"--config-dir=" + agent + "etc/kubelet.conf.d", "--kubeconfig=" + agent + "kubelet.kubeconfig",
		"--hostname-override=" + os.Getenv("K3S_NODE_NAME"), "--read-only-port=0"}, os.Args[2:]...))
	log.Fatalf("kubelet exited: %v", command.Execute())
}
