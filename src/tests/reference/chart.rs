//! packaging/helm/nodevigil/README.md, from the chart's values.yaml.

use std::fs;

use super::{generated, head, repository, row};

const CHART: &str = "packaging/helm/nodevigil";

const INTRODUCTION: &str = "\
# nodevigil

A DaemonSet. On each node one pod watches the kubelet, the container runtime, memory, disks and the kernel, and publishes problems as conditions of the
Node. It needs Kubernetes 1.30 or later, and nodes with systemd. `make docs` generates this file.

```sh
helm install nodevigil nodevigil-VERSION.tgz -n kube-system --set image.repository=REGISTRY/nodevigil
kubectl -n kube-system rollout status daemonset nodevigil
kubectl -n kube-system exec daemonset/nodevigil -- nodevigil status
helm uninstall nodevigil -n kube-system
```

Start with a dry run: with `--set-literal settings='kubernetes.publish = \"none\"'` the agents publish nothing, and `nodevigil status` shows what they find.

Install it in kube-system, because the roles and policies name the ServiceAccount `nodevigil` there. Without Helm: `kubectl apply -f nodevigil.yaml`, which is the chart with
the default values. A chart that depends on this one turns it off with
`nodevigil.enabled=false`. Helm installs the policies last; to have them before the roles, `kubectl apply` packaging/kubernetes/policy.yaml first and set `policy=false`. Where `nodevigil.service` runs on the host, the pod says so in its log and waits: each node has one agent.

## What the pod may do

The container is privileged, because a container runtime lets no other container open `/dev/kmsg`, the kernel's log. It shares the host's network and process ids. The
host's root directory is mounted at `/host`, and the agent makes it its own root directory, so that every path in its messages and settings is the
host's. The root file system is read-only there; other file systems of the host (`/run`, `/dev`, a separate `/var`) are not. The agent writes only to `/run/nodevigil` and `/var/lib/nodevigil`. An attacker who takes over its process controls the whole node. At the API server its token is bound to the pod, and the
policies let it write only conditions, taints and Events of the pod's own Node.

## What the systemd unit does better

- A pod needs a kubelet and a container runtime that have worked once since the boot. The unit also reports those that have not.
- A running pod continues when the kubelet dies. A pod that ends then is not started again.
- The token is valid for a day, and the kubelet renews it in the last fifth of that. So if the kubelet dies, the agent can publish for 5 to 24 hours more.
- The API server refuses the token one minute after the pod is deleted. If that is done while the kubelet is dead (a rollout, `kubectl delete pod`), the agent
  publishes nothing more, and no new pod starts: repair such nodes before an upgrade.
- The unit's sandbox (`ProtectSystem=`, `SystemCallFilter=`) does not exist in the pod.
- `nodevigil check` does not run before the kubelet starts.
- The test writes of docs/limits.md to other file systems are not possible.

## What was tested

The stories `pods::…` install the chart on one node without other workloads, with a real scheduler and real controllers (Kubernetes 1.36, containerd 1.6). There,
with the image on the node, `KubeletHealthy` is `True` 1.5 s after `helm install`. The agent's process reports that the kubelet was killed, hung and OOM-killed, and
that containerd was killed while the kubelet was dead. The conditions stay as they were through an eviction, an upgrade to an image that does not start, its rollback,
and a start of `nodevigil.service` next to the pod. `helm uninstall` takes 4.5 s, and leaves no object of the chart and no condition of nodevigil. The manifest
for kubectl was tried too, with the commands below.

## What remains

`helm uninstall` deletes everything in the cluster, and a Job then removes nodevigil's conditions and taints from every Node, also from those that a systemd unit serves
(which writes its own again): to move to the unit, run `helm upgrade --reuse-values --set cleanup=false` first. After `kubectl delete -f nodevigil.yaml`, and if the Job
fails, run it by hand; the last line deletes its rights:

```sh
helm template nodevigil nodevigil-VERSION.tgz -n kube-system --set image.repository=REGISTRY/nodevigil --show-only templates/cleanup.yaml >cleanup.yaml
kubectl delete -f cleanup.yaml --ignore-not-found && kubectl apply -f cleanup.yaml
kubectl -n kube-system wait --for=condition=complete job/nodevigil-cleanup --timeout=280s
kubectl delete -f cleanup.yaml
```

The Job logs its progress; a further run does only what remains.

A pod that ends because its DaemonSet no longer wants it on the node (another `nodeSelector`, other `tolerations`, `kubectl delete daemonset`) turns what is `False` into
`Unknown` and removes its taints. One that is replaced or restarted leaves everything as it is. A pod whose kubelet is dead is not told to end: there everything stays.

`/var/lib/nodevigil` stays on the hosts, and until the next boot `/run/nodevigil` and the empty directory `/run/secrets/kubernetes.io/serviceaccount`.

## Values

";

#[test]
fn the_values_of_the_chart_are_documented() {
    let mut text = INTRODUCTION.to_owned() + &head(["value", "default", "meaning"]);
    let values = fs::read_to_string(repository().join(CHART).join("values.yaml")).unwrap();
    let (mut path, mut meaning) = (Vec::new(), String::new());
    for line in values.lines().filter(|line| !line.is_empty()) {
        let indented = line.trim_start();
        let (first, further) = (indented.strip_prefix("# -- "), indented.strip_prefix("# "));
        if let Some(begin) = first {
            meaning = begin.to_owned();
        } else if let Some(more) = further {
            meaning = format!("{meaning} {more}");
        } else if let Some((key, value)) = indented.split_once(':') {
            path.truncate((line.len() - indented.len()) / 2);
            path.push(key);
            if !meaning.is_empty() {
                let default = if value.is_empty() { "see values.yaml".into() } else { format!("`{}`", value.trim()) };
                text += &row([&format!("`{}`", path.join(".")), &default, &std::mem::take(&mut meaning)]);
            }
        }
    }
    generated(&format!("{CHART}/README.md"), &text);
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = fs::read_to_string(repository().join(CHART).join("Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: {version}\n")), "{chart}");
}
