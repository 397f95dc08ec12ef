//! packaging/helm/nodevigil/README.md, from the chart's values.yaml.

use std::fs;

use super::{generated, head, repository, row};

const CHART: &str = "packaging/helm/nodevigil";

const INTRODUCTION: &str = "\
# nodevigil

A DaemonSet that watches the kubelet, the container runtime, memory, disks and the kernel of each node, and publishes problems as conditions of the Node. It needs
Kubernetes 1.30 or later, and nodes with systemd. `make docs` generates this file.

```sh
helm install nodevigil nodevigil-VERSION.tgz -n kube-system --set image.repository=REGISTRY/nodevigil
kubectl -n kube-system rollout status daemonset nodevigil
kubectl -n kube-system exec daemonset/nodevigil -- nodevigil status
helm uninstall nodevigil -n kube-system
```

Start with a dry run: with `--set-literal settings='kubernetes.publish = \"none\"'` the agents publish nothing, and `nodevigil status` shows what they find.

Install it in kube-system, because the roles and policies name the ServiceAccount `nodevigil` there. Without Helm, run `kubectl apply -f nodevigil.yaml`, which is the chart
with the default values. A chart that depends on this one turns it off with `nodevigil.enabled=false`. Helm installs the policies after the roles; if you need them earlier,
apply packaging/kubernetes/policy.yaml first and set `policy=false`. On a host where `nodevigil.service` runs, the pod waits, because a node has only one agent.

The namespace must admit privileged pods. On OpenShift, first run `oc adm policy add-scc-to-user privileged -z nodevigil -n kube-system` (not tested). GKE Autopilot admits
none.

## What the pod may do

The container is privileged, because a container runtime lets no other container open `/dev/kmsg`, the kernel's log. It shares the host's network and process ids. The
host's root directory is mounted at `/host`. The agent uses it as its own root directory (chroot), so paths in messages and settings are the
host's. Only the root file system is mounted read-only; `/run`, `/dev` and a separate `/var` are writable. The agent writes only to `/run/nodevigil` and
`/var/lib/nodevigil`. An attacker who takes over its process controls the whole node. The pod's token can write only nodevigil's conditions and taints on its own Node, and
Events about that Node.

## What the systemd unit does better

- The unit reports a kubelet or a container runtime that has never worked since boot. A pod starts only after both have worked.
- A running pod continues when the kubelet dies. If the pod then ends, nothing starts it again.
- The pod's token is valid for a day, and the kubelet renews it in its last fifth. After the kubelet dies, the agent can publish for 5 to 24 more hours.
- On a node with a dead kubelet, do not delete the pod (`kubectl delete pod`, a rollout). The API server refuses the token of a deleted pod after a minute, and no new pod
  starts. Repair such nodes before an upgrade.
- The unit's sandbox (`ProtectSystem=`, `SystemCallFilter=`) does not exist in the pod.
- `nodevigil check` does not run before the kubelet starts.
- The pod makes no test writes to other disks (docs/limits.md).

## What was tested

The stories `pods::…` install the chart on one node without other workloads, with a real scheduler and real controllers (Kubernetes 1.36, containerd 1.6). With the image on the node, `KubeletHealthy` is `True` 1.5 s after `helm install`. The agent reports a kubelet that is killed, hangs or is OOM-killed, and a
containerd that is killed while the kubelet is dead. The conditions survive an eviction, an upgrade to an image that does not start, its rollback,
and a start of `nodevigil.service` next to the pod. `helm uninstall` takes 4.5 s, and leaves no object of the chart and no condition of nodevigil. The manifest
for kubectl was tested too, with the commands below.

## Uninstall

`helm uninstall` deletes the chart's objects. Then a Job removes nodevigil's conditions and taints from every Node. Agents that run as a systemd unit write theirs again. To
move from the pod to the unit, first run `helm upgrade --reuse-values --set cleanup=false`.

If the Job fails, after `kubectl delete -f nodevigil.yaml`, and after an upgrade with `enabled=false`, which runs no Job, run it by hand. The last line deletes its
permissions:

```sh
helm template nodevigil nodevigil-VERSION.tgz -n kube-system --set image.repository=REGISTRY/nodevigil --show-only templates/cleanup.yaml >cleanup.yaml
kubectl delete -f cleanup.yaml --ignore-not-found && kubectl apply -f cleanup.yaml
kubectl -n kube-system wait --for=condition=complete job/nodevigil-cleanup --timeout=280s
kubectl delete -f cleanup.yaml
```

The Job logs its progress. You can run it again: it continues with the Nodes that remain.

A pod that ends because its DaemonSet was deleted or no longer selects the Node (`nodeSelector`, `tolerations`) changes `False` conditions to `Unknown` and removes its
taints. A pod that is replaced or restarted changes nothing. A pod on a node with a dead kubelet does not end, so everything stays.

`/var/lib/nodevigil` stays on the hosts; `/run/nodevigil` and the empty directory `/run/secrets/kubernetes.io/serviceaccount` stay until the next boot.

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
