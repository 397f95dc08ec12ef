//! Healthy hosts of other distributions and installers, as they are known: the rules on units, drop-ins and environment
//! files find nothing worse than `info` on them.

use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{external, kubeadm};
use crate::rules::{Severity, lint};

/// What the rules on systemd's side find, of warnings and worse.
fn bad(tree: &MemoryTree, unit: &str) -> Vec<String> {
    let inputs = Inputs { unit: Some(unit.to_owned()), ..external() };
    let findings = lint(&resolve(tree, inputs)).findings;
    findings
        .into_iter()
        .filter(|finding| finding.rule.starts_with("SD") || finding.rule == "CL001")
        .filter(|finding| finding.severity > Severity::Info)
        .map(|finding| format!("{} {}: {}", finding.rule, finding.at, finding.message))
        .collect()
}

fn is_healthy(tree: &MemoryTree) {
    assert_eq!(bad(tree, "kubelet.service"), [""; 0]);
}

const UNIT: &str = "/etc/systemd/system/kubelet.service";
const DIRECTORY: &str = "/etc/systemd/system/kubelet.service.d";

#[test]
fn kubeadm_with_the_flag_in_its_place() {
    is_healthy(&kubeadm().file("/etc/default/kubelet", "# ours\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n"));
}

#[test]
fn aks_has_a_drop_in_for_every_variable() {
    let unit = "[Unit]\nDescription=Kubelet\nConditionPathExists=/opt/bin/kubelet\n[Service]\nRestart=always\nEnvironmentFile=/etc/default/kubelet\nSuccessExitStatus=143\nExecStartPre=/bin/bash /opt/azure/containers/kubelet.sh\nExecStartPre=/bin/mkdir -p /var/lib/kubelet\nExecStart=/opt/bin/kubelet \\\n        --enable-server \\\n        --node-labels=\"${KUBELET_NODE_LABELS}\" \\\n        --v=2 \\\n        --volume-plugin-dir=/etc/kubernetes/volumeplugins \\\n        $KUBELET_TLS_BOOTSTRAP_FLAGS \\\n        $KUBELET_CONFIG_FILE_FLAGS \\\n        $KUBELET_CONTAINERD_FLAGS \\\n        $KUBELET_CONTAINER_RUNTIME_FLAG \\\n        $KUBELET_CGROUP_FLAGS \\\n        $KUBELET_FLAGS\n\n[Install]\nWantedBy=multi-user.target\n";
    let env = "KUBELET_FLAGS=--azure-container-registry-config=/etc/kubernetes/azure.json --cloud-provider=external --node-ip=10.0.0.4\nKUBELET_REGISTER_SCHEDULABLE=true\nNETWORK_POLICY=\nKUBELET_IMAGE=\nKUBELET_NODE_LABELS=agentpool=np1,kubernetes.azure.com/role=agent\nAZURE_ENVIRONMENT_FILEPATH=\n";
    is_healthy(
        &MemoryTree::new()
            .file(UNIT, unit)
            .file("/opt/bin/kubelet", "")
            .mode("/opt/bin/kubelet", 0o755)
            .file("/etc/default/kubelet", env)
            .file("/etc/default/kubeletconfig.json", "{\"kind\":\"KubeletConfiguration\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\"}")
            .file(format!("{DIRECTORY}/10-componentconfig.conf"), "[Service]\nEnvironment=\"KUBELET_CONFIG_FILE_FLAGS=--config /etc/default/kubeletconfig.json\"\n")
            .file(format!("{DIRECTORY}/10-containerd-base-flag.conf"), "[Service]\nEnvironment=\"KUBELET_CONTAINERD_FLAGS=--runtime-request-timeout=15m --container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n")
            .file(format!("{DIRECTORY}/10-tlsbootstrap.conf"), "[Service]\nEnvironment=\"KUBELET_TLS_BOOTSTRAP_FLAGS=--kubeconfig /var/lib/kubelet/kubeconfig --bootstrap-kubeconfig /var/lib/kubelet/bootstrap-kubeconfig\"\n")
            .file(format!("{DIRECTORY}/10-watchdog.conf"), "[Service]\nWatchdogSec=60s\n"),
    );
}

#[test]
fn kops_quotes_its_only_variable() {
    let unit = "[Unit]\nDescription=Kubernetes Kubelet Server\n[Service]\nEnvironmentFile=/etc/sysconfig/kubelet\nExecStart=/usr/local/bin/kubelet \"$DAEMON_ARGS\"\nRestart=always\nRestartSec=2s\nStartLimitInterval=0\nKillMode=process\nUser=root\nCPUAccounting=true\n";
    is_healthy(
        &MemoryTree::new()
            .file("/lib/systemd/system/kubelet.service", unit)
            .file("/etc/sysconfig/kubelet", "DAEMON_ARGS=\"--cloud-provider=external --config=/var/lib/kubelet/kubelet.conf --kubeconfig=/var/lib/kubelet/kubeconfig\"\nHOME=\"/root\"\n"),
    );
}

#[test]
fn openshift_starts_through_a_wrapper_and_reads_os_release() {
    let unit = "[Unit]\nDescription=Kubernetes Kubelet\n[Service]\nType=notify\nEnvironmentFile=/etc/os-release\nEnvironmentFile=-/etc/kubernetes/kubelet-workaround\nEnvironmentFile=-/etc/kubernetes/kubelet-env\nExecStart=/usr/local/bin/kubenswrapper \\\n    /usr/bin/kubelet \\\n      --config=/etc/kubernetes/kubelet.conf \\\n      --kubeconfig=/var/lib/kubelet/kubeconfig \\\n      --node-labels=node-role.kubernetes.io/worker,node.openshift.io/os_id=${ID} \\\n      --node-ip=${KUBELET_NODE_IP} \\\n      --cloud-provider=external \\\n      --hostname-override=${KUBELET_NODE_NAME} \\\n      --v=${KUBELET_LOG_LEVEL}\nRestart=always\nRestartSec=10\n";
    is_healthy(
        &MemoryTree::new()
            .file(UNIT, unit)
            .file("/usr/local/bin/kubenswrapper", "#!/bin/bash\nexec \"$@\"\n")
            .mode("/usr/local/bin/kubenswrapper", 0o755)
            .file("/etc/os-release", "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhcos\"\nID_LIKE=\"rhel fedora\"\nPRETTY_NAME=\"RHCOS 418\"\n")
            .file(format!("{DIRECTORY}/20-logging.conf"), "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=2\"\n")
            .file(format!("{DIRECTORY}/20-nodenet.conf"), "[Service]\nEnvironment=\"KUBELET_NODE_IP=10.0.0.5\" \"KUBELET_NODE_IPS=10.0.0.5\"\n")
            .file(format!("{DIRECTORY}/10-mco-default-env.conf"), "[Service]\nEnvironmentFile=/etc/kubernetes/node.env\n")
            .file("/etc/kubernetes/node.env", "KUBELET_NODE_NAME=worker-1\nHTTPS_PROXY=http://10.0.0.1:3128\n"),
    );
}

#[test]
fn flatcar_reads_sysconfig_and_image_builder_both_files() {
    let drop_in = "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/sysconfig/kubelet\n@MORE@\nExecStart=\nExecStart=/opt/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";
    let flatcar = drop_in.replace("@MORE@\n", "");
    let unit = "[Service]\nExecStart=/opt/bin/kubelet\nRestart=always\nStartLimitInterval=0\nRestartSec=10\n";
    let own = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
    let tree = MemoryTree::new()
        .file(UNIT, unit)
        .file(format!("{DIRECTORY}/10-kubeadm.conf"), flatcar)
        .file("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.7\"\n");
    // No package ships an empty file there: the drop-in works.
    is_healthy(&tree.file(format!("{DIRECTORY}/20-cloud.conf"), own));
    let both = drop_in.replace("@MORE@", "EnvironmentFile=-/etc/default/kubelet");
    is_healthy(
        &kubeadm()
            .file(format!("{DIRECTORY}/10-kubeadm.conf"), both.replace("/opt/bin", "/usr/bin"))
            .file("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=\n")
            .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
    );
}

#[test]
fn a_unit_with_its_flags_written_out() {
    let unit = "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/local/bin/kubelet \\\n  --config=/var/lib/kubelet/kubelet-config.yaml \\\n  # a comment between\n  --kubeconfig=/var/lib/kubelet/kubeconfig \\\n  --cloud-provider=external \\\n  --v=2\nRestart=on-failure\nRestartSec=5\n\n[Install]\nWantedBy=multi-user.target\n";
    is_healthy(&MemoryTree::new().file(UNIT, unit));
}

#[test]
fn gce_has_one_variable_with_double_blanks() {
    let unit = "[Unit]\nDescription=Kubernetes kubelet\n[Service]\nRestart=always\nRestartSec=10\nEnvironmentFile=/etc/default/kubelet\nExecStart=/home/kubernetes/bin/kubelet $KUBELET_OPTS\n";
    is_healthy(
        &MemoryTree::new()
            .file(UNIT, unit)
            .file("/etc/default/kubelet", "KUBELET_OPTS=\"--v=2  --cloud-provider=external  --config /home/kubernetes/kubelet-config.yaml  --kubeconfig=/var/lib/kubelet/kubeconfig\"\nKUBE_COVERAGE_FILE=\"/var/log/kubelet.cov\"\n"),
    );
}
