//! The agent as a pod of the Helm chart, with a real scheduler and real controllers: what it reports, what it outlives, and what is
//! left when it is upgraded and removed.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::scene::{ObservedNode, Scene};
use crate::support::daemon::Daemon;
use crate::support::helm::{self, Helm};
use crate::support::namespaces::{self, ADDRESS};
use crate::support::{WAIT, repository, say, wait_until};

/// A node on which the chart's pod runs and reports.
struct Release {
    helm: Helm,
    node: Arc<ObservedNode>,
    _controllers: [Daemon; 2],
}

impl Release {
    /// Boots the node and installs the chart.
    fn install(scene: &Scene) -> Result<Self> {
        let (node, controllers) = boot(scene)?;
        let helm = Helm::new(scene.plane());
        let from = Instant::now();
        helm.with_chart("install", &[])?;
        let healthy = node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        took("helm install → KubeletHealthy=True", from, healthy.at);
        Ok(Self { helm, node, _controllers: controllers })
    }

    /// The pid of the agent on the node.
    fn agent(&self) -> Result<String> {
        let pids = self.node.sh("pgrep -x nodevigil")?;
        ensure!(pids.lines().count() == 1, "more than one agent: {pids}");
        Ok(pids)
    }
}

/// A node that runs pods and has the images, with the scheduler and the controllers.
fn boot(scene: &Scene) -> Result<(Arc<ObservedNode>, [Daemon; 2])> {
    let controllers = scene.plane().start_workload_controllers()?;
    let layers = helm::layers()?;
    let node = scene.ready_with(|node| helm::runs_pods(node, layers))?;
    // The pod's own token is to be used.
    node.sh("mv /etc/nodevigil/kubeconfig /root/")?;
    helm::import_images(&node)?;
    Ok((node, controllers))
}

fn took(what: &str, from: Instant, to: Instant) {
    say(&format!("{:6.2} s  {what}", to.saturating_duration_since(from).as_secs_f64()));
}

/// Runs `story` without the harness's roles and policies, which are the chart's here, and removes what it may have left.
fn with_the_charts_policies(scene: &Scene, story: impl FnOnce() -> Result<()>) -> Result<()> {
    let plane = scene.plane();
    plane.delete_manifests()?;
    let result = story();
    let uninstalled = Helm::new(plane).run(&["uninstall", "nodevigil", "--ignore-not-found", "--no-hooks"]);
    // No controller deletes them any more.
    let deleted = plane.kubectl(&["delete", "pods", "-n", "kube-system", "--all", "--force", "--grace-period=0"]);
    let applied = plane.apply_manifests();
    result.and(uninstalled.map(drop)).and(deleted.map(drop)).and(applied)
}

/// The chart's pods that are not being deleted.
fn pods(scene: &Scene) -> Result<Vec<Value>> {
    let text = scene.plane().kubectl(&["get", "pods", "-n", "kube-system", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    Ok(pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect())
}

/// The only pod, once `wanted` holds for it.
fn wait_for_pod(scene: &Scene, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<String> {
    let mut last = Vec::new();
    let found = wait_until(what, WAIT, || {
        last = pods(scene)?;
        let pod = last.first().filter(|pod| last.len() == 1 && wanted(pod));
        Ok(pod.and_then(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned))
    });
    found.with_context(|| format!("{last:#?}"))
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == true
}

pub fn a_pod_outlives_kubelet_and_runtime(scene: &Scene) -> Result<()> {
    with_the_charts_policies(scene, || {
        let release = Release::install(scene)?;
        let (node, agent) = (&release.node, release.agent()?);
        // As kubectl exec does it.
        let task = format!("$(ctr -n k8s.io tasks ls | awk '$2 == {} {{print $1}}')", agent.trim());
        let status =
            node.sh(&format!("ctr -n k8s.io tasks exec --exec-id status {task} nodevigil status KubeletHealthy"))?;
        ensure!(status.contains("KubeletIsHealthy"), "{status}");

        let from = Instant::now();
        let killed = node.kill_for_good()?;
        took("kubelet killed → False/KubeletCrashed", from, killed.at);
        ensure!(killed.message.contains("SIGKILL"), "{killed:?}");

        // With the kubelet still dead.
        let runtime = node.condition("ContainerRuntimeHealthy");
        let from = Instant::now();
        node.sh("systemctl kill --kill-who=main --signal=KILL containerd")?;
        let down = runtime.wait_for(from, "False", "ContainerRuntimeDown")?;
        took("containerd killed → False/ContainerRuntimeDown", from, down.at);
        runtime.wait_for(down.at, "True", "ContainerRuntimeIsHealthy")?;
        node.start_kubelet()?;

        let from = Instant::now();
        node.sh("systemctl kill --kill-who=main --signal=STOP kubelet")?;
        let hung = node.kubelet().wait_longer_for(from, Duration::from_mins(3), "False", "KubeletHung")?;
        took("kubelet stopped by SIGSTOP → False/KubeletHung", from, hung.at);
        node.sh("systemctl kill --kill-who=main --signal=CONT kubelet")?;
        node.kubelet().wait_for(hung.at, "True", "KubeletIsHealthy")?;

        let from = Instant::now();
        node.sh(
            "systemctl set-property --runtime kubelet MemoryLimit=8M MemoryMax=8M; systemctl restart kubelet || true",
        )?;
        let killed = node.kubelet().wait_for(from, "False", "KubeletOOMKilled")?;
        took("restart with a limit of 8 MiB → False/KubeletOOMKilled", from, killed.at);
        ensure!(killed.message.contains("limit of "), "{killed:?}");
        ensure!(release.agent()? == agent, "another agent runs now");
        Ok(())
    })
}

pub fn a_pod_is_replaced_and_removed(scene: &Scene) -> Result<()> {
    with_the_charts_policies(scene, || {
        let release = Release::install(scene)?;
        let (node, helm, plane) = (&release.node, &release.helm, scene.plane());
        let healthy = node.kubelet().shown()?;

        let evicted = wait_for_pod(scene, "the pod to be ready", is_ready)?;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": evicted, "namespace": "kube-system"}});
        let file = namespaces::work().join("eviction.json").display().to_string();
        fs::write(&file, eviction.to_string())?;
        let path = format!("/api/v1/namespaces/kube-system/pods/{evicted}/eviction");
        let from = Instant::now();
        plane.kubectl(&["create", "--raw", &path, "-f", &file])?;
        wait_for_pod(scene, "another pod to be ready", |pod| pod["metadata"]["name"] != evicted && is_ready(pod))?;
        took("eviction → the next pod is ready", from, Instant::now());
        node.kubelet().ensure_no_flip(&healthy).context("after an eviction")?;

        helm.with_chart("upgrade", &["--set", "image.tag=broken"])?;
        let has_failed = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            status["image"].as_str().is_some_and(|image| image.ends_with(":broken"))
                && status["restartCount"].as_u64() > Some(0)
        };
        wait_for_pod(scene, "the image to fail", has_failed)?;
        node.kubelet().ensure_no_flip(&healthy).context("with an image that does not start")?;
        let from = Instant::now();
        helm.run(&["rollback", "nodevigil", "--wait", "--timeout", "100s"])?;
        took("helm rollback --wait", from, Instant::now());
        node.kubelet().ensure_no_flip(&healthy).context("after the rollback")?;

        node.sh("cp /root/kubeconfig /etc/nodevigil/kubeconfig")?;
        node.start_agent()?;
        let log = "cat /var/log/pods/kube-system_nodevigil-*/nodevigil/*.log";
        wait_until("the pod to wait for the unit", WAIT, || {
            Ok(node.sh(log)?.contains("nodevigil.service has started on this host").then_some(()))
        })?;
        node.sh("systemctl stop nodevigil; rm /etc/nodevigil/kubeconfig")?;
        node.kubelet().ensure_no_flip(&healthy).context("next to the unit")?;
        let killed = node.kill_for_good()?;
        ensure!(killed.message.contains("SIGKILL"), "{killed:?}");
        node.start_kubelet()?;

        let from = Instant::now();
        helm.run(&["uninstall", "nodevigil", "--wait", "--timeout", "100s"])?;
        took("helm uninstall --wait", from, Instant::now());
        wait_until_nothing_is_left(scene)
    })
}

/// Without Helm's hooks, as the chart's README describes it.
pub fn a_manifest_is_applied_and_removed(scene: &Scene) -> Result<()> {
    with_the_charts_policies(scene, || {
        let (node, _controllers) = boot(scene)?;
        let plane = scene.plane();
        let manifest = repository().join("dist/nodevigil.yaml").display().to_string();
        let from = Instant::now();
        plane.kubectl(&["apply", "-f", &manifest])?;
        // There is no kube-proxy here.
        let (host, port) =
            (format!("KUBERNETES_SERVICE_HOST={ADDRESS}"), format!("KUBERNETES_SERVICE_PORT={}", plane.port()));
        plane.kubectl(&["set", "env", "-n", "kube-system", "daemonset/nodevigil", &host, &port])?;
        node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        plane.kubectl(&["delete", "-f", &manifest])?;

        let cleanup = namespaces::work().join("cleanup.yaml").display().to_string();
        let job = Helm::new(plane).with_chart("template", &["--show-only", "templates/cleanup.yaml"])?;
        fs::write(&cleanup, job)?;
        plane.kubectl(&["apply", "-f", &cleanup])?;
        let succeeded = ["get", "job", "-n", "kube-system", "nodevigil-cleanup", "-o", "jsonpath={.status.succeeded}"];
        wait_until("the Job to succeed", WAIT, || Ok((plane.kubectl(&succeeded)? == "1").then_some(())))?;
        plane.kubectl(&["delete", "-f", &cleanup])?;
        wait_until_nothing_is_left(scene)
    })
}

/// Waits until neither the Node nor the cluster has anything of the chart: the garbage collector deletes the pods after their owners.
fn wait_until_nothing_is_left(scene: &Scene) -> Result<()> {
    let kinds = "all,configmaps,secrets,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas";
    let mut left = Vec::new();
    let gone = wait_until("nothing to be left", WAIT, || {
        let node = scene.plane().node(scene.node_name())?.context("no Node")?;
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let types = conditions.filter_map(|one| one["type"].as_str()).filter(|kind| kind.ends_with("Healthy"));
        left = types.map(str::to_owned).collect();
        let objects = scene.plane().kubectl(&["get", kinds, "-A", "-o", "name"])?;
        let of_the_node = [&node["metadata"]["annotations"], &node["metadata"]["labels"], &node["spec"]["taints"]];
        let of_the_node = of_the_node.map(ToString::to_string);
        let all = objects.lines().map(str::to_owned).chain(of_the_node);
        left.extend(all.filter(|text| text.contains("nodevigil")));
        Ok(left.is_empty().then_some(()))
    });
    gone.with_context(|| format!("{left:#?}"))
}
