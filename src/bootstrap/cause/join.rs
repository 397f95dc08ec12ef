//! Causes of a host that does not get into the cluster: the join, the credential, the API server.

use super::{Cause, cause};
use crate::bootstrap::evidence::{CloudInit, CredentialSeen, Evidence, NodeSeen, ServerSeen};

pub(super) fn join_failed(evidence: &Evidence) -> Option<Cause> {
    let host = &evidence.host;
    let words = host.join_words.as_ref().filter(|_| host.awaits_join)?;
    Some(cause(
        "join-failed",
        format!("kubeadm join has failed: {words}"),
        "kubeadm token create --print-join-command on a control plane gives a command that works; /var/log/cloud-init-output.log has the rest",
    ))
}

pub(super) fn awaits_join(evidence: &Evidence) -> Option<Cause> {
    if !evidence.host.awaits_join {
        return None;
    }
    let who = match &evidence.host.cloud_init {
        CloudInit::Running { .. } => "; cloud-init is still at work",
        CloudInit::Finished { .. } => "; cloud-init is through",
        _ => "",
    };
    Some(cause(
        "awaits-join",
        format!(
            "this host has not joined a cluster: it has no kubeconfig, and none to bootstrap with{who}"
        ),
        "kubeadm join has not run, or not ended yet",
    ))
}

pub(super) fn not_yet_valid(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Certificate {
            file,
            not_before_secs,
            ..
        } if *not_before_secs > evidence.wall_secs => Some(cause(
            "KN008",
            format!(
                "the client certificate in {file} begins at {}: this host's clock is behind, or that of whoever signed it is ahead",
                time(*not_before_secs)
            ),
            "chronyc tracking, or timedatectl: the clock must be right before the kubelet starts",
        )),
        _ => None,
    }
}

pub(super) fn expired(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Certificate {
            file,
            not_after_secs,
            ..
        } if *not_after_secs <= evidence.wall_secs => Some(cause(
            "AU002",
            format!(
                "the client certificate in {file} has ended at {}",
                time(*not_after_secs)
            ),
            "remove it and its kubeconfig and join anew; an image must not carry its parent's",
        )),
        _ => None,
    }
}

fn time(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |at| at.to_string())
}

pub(super) fn unreachable(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Unreachable { server, why } => Some(cause(
            "AU005",
            format!("the API server {server} cannot be reached: {why}"),
            "DNS, firewall or security group, route, load balancer; or the address in the template is wrong",
        )),
        ServerSeen::OtherAuthority { server, why } => Some(cause(
            "AU005",
            format!(
                "the API server {server} shows a certificate of another authority than the kubeconfig believes: {why}"
            ),
            "the template's certificate authority is another cluster's: take the one of this cluster, and join anew",
        )),
        _ => None,
    }
}

pub(super) fn token_refused(evidence: &Evidence) -> Option<Cause> {
    match (&evidence.server, &evidence.host.credential) {
        (ServerSeen::Unauthorized { server }, CredentialSeen::Bootstrap { file }) => Some(cause(
            "AU004",
            format!(
                "{server} refuses the bootstrap token of {file}: it has expired (kubeadm's live 24 h) or was deleted"
            ),
            "kubeadm token create --print-join-command on a control plane, and a new token in the template",
        )),
        _ => None,
    }
}

pub(super) fn csr_pending(evidence: &Evidence) -> Option<Cause> {
    let CredentialSeen::Bootstrap { file } = &evidence.host.credential else {
        return None;
    };
    (evidence.server == ServerSeen::Answers).then(|| {
        cause(
            "csr-pending",
            format!("the API server takes the token of {file}, and there is no certificate yet: the request waits for approval, or the kubelet does not run"),
            "kubectl get csr; the approving controller of kube-controller-manager, and the token's group system:bootstrappers",
        )
    })
}

pub(super) fn credential_bad(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.credential {
        CredentialSeen::Bad { why } => Some(cause("credential-bad", why.as_str(), "join anew")),
        _ => None,
    }
}

pub(super) fn credential_waits(evidence: &Evidence) -> Option<Cause> {
    let (CredentialSeen::Missing | CredentialSeen::Bootstrap { .. }) = &evidence.host.credential
    else {
        return None;
    };
    let why = match &evidence.server {
        ServerSeen::NotAsked { why } => format!("the API server was not asked: {why}"),
        ServerSeen::Trouble { server, why } => format!("{server}: {why}"),
        ServerSeen::Unauthorized { server } => format!("{server} does not accept it (401)"),
        _ => "the kubelet has not asked for one".to_owned(),
    };
    Some(cause(
        "credential-waits",
        format!("the kubelet has no credential yet; {why}"),
        "journalctl -u kubelet",
    ))
}

pub(super) fn not_registered(evidence: &Evidence) -> Option<Cause> {
    let NodeSeen::Absent { name } = &evidence.node else {
        return None;
    };
    Some(cause(
        "not-registered",
        format!("the kubelet runs, and the API server has no Node {name}"),
        "journalctl -u kubelet; if it registers another name, set [node] name",
    ))
}

pub(super) fn credential_refused(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Unauthorized { server } => Some(cause(
            "credential-refused",
            format!(
                "{server} does not accept the kubelet's credential (401): it is another cluster's, or has expired"
            ),
            "remove /etc/kubernetes/kubelet.conf and /var/lib/kubelet/pki, and join anew",
        )),
        _ => None,
    }
}

pub(super) fn server_trouble(evidence: &Evidence) -> Option<Cause> {
    match &evidence.server {
        ServerSeen::Trouble { server, why } => Some(cause(
            "server-trouble",
            format!("{server}: {why}"),
            "look at the API server",
        )),
        _ => None,
    }
}

pub(super) fn kubelet_words(evidence: &Evidence) -> Option<Cause> {
    let words = evidence.last_words.as_ref()?;
    Some(cause(
        "kubelet-words",
        format!("the kubelet says: {words}"),
        "journalctl -u kubelet",
    ))
}
