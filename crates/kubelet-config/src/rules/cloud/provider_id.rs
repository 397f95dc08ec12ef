//! CL005: the providerID that the kubelet gives its Node.

use super::{api, given_provider_id};
use crate::rules::{Finding, Lifecycle, Report, Severity, Snapshot, Step, at, shortened};

const AFTERWARDS: &str = "If the Node exists already, delete it before the kubelet starts again: the providerID of a \
                          Node cannot be changed";

pub(in crate::rules) fn provider_id(snapshot: &Snapshot, report: &mut Report) {
    let Some((id, place)) = given_provider_id(snapshot) else { return api::provider_id_absent(snapshot, report) };
    let cloud = snapshot.cloud.as_ref();
    // What the operator declares counts more than what the cloud says.
    let right = snapshot.intent.provider_id.clone().or_else(|| cloud.ok()?.provider_id());
    let is_right = right.as_ref() == Some(&id);
    let shown = shortened(&id);
    let message = if let Some(reason) = malformed(&id) {
        format!(
            "providerID {shown} {reason}. Neither the autoscaler nor the cloud controller can match this Node to its server"
        )
    } else if is_right {
        return;
    } else if let Some(declared) = &snapshot.intent.provider_id {
        format!(
            "providerID is {shown}, but [intent] declares {declared}. The autoscaler will match this Node to the wrong \
             server"
        )
    } else {
        let cloud = match cloud {
            Ok(cloud) => cloud,
            Err(lacks) => return report.not_checked("CL005", lacks),
        };
        let Some(instance) = cloud.instance_id.as_deref() else {
            return report.not_checked("CL005", "this machine's id in its cloud");
        };
        // A scheme other than the cloud's own belongs to another controller.
        let scheme = |id: &str| id.split_once("://").map(|(scheme, _)| scheme.to_owned());
        if right.as_deref().is_some_and(|right| scheme(right) != scheme(&id)) {
            return;
        }
        let last = id.rsplit('/').next().unwrap_or_default();
        if [instance, cloud.name.as_deref().unwrap_or(instance)].iter().any(|own| own.eq_ignore_ascii_case(last)) {
            return;
        }
        format!(
            "providerID {shown} does not match this instance ({instance}). The autoscaler will match this Node to the \
             wrong server"
        )
    };
    let file = cloud.ok().and_then(|cloud| cloud.at.clone());
    let finding = Finding::new("CL005", Severity::Error, place.clone(), message)
        .steps(file.map(|file| (file, "cloud-init has this machine's id from the cloud")));
    let finding = match right.filter(|right| malformed(right).is_none()) {
        // Once the Node is there it would have to be deleted first.
        Some(right) => finding
            .with(match snapshot.flags.last("provider-id") {
                Some(used) => at::set_value(snapshot, used, &right),
                None => Step::write(Some(place.clone()), &place, "providerID: ", right),
            })
            .by_hand_if(snapshot.lifecycle != Lifecycle::BeforeFirstStart)
            .say("Correct the template that wrote it, too"),
        None => finding.say_at(&place, "correct the template that wrote the providerID"),
    };
    report.add(finding.say(AFTERWARDS));
}

/// Why a providerID cannot be matched; only forms that are documented are judged.
fn malformed(id: &str) -> Option<String> {
    let Some((cloud, rest)) = id.split_once("://") else {
        // Oracle's has no scheme.
        return (!id.starts_with("ocid1.")).then(|| "does not begin with its cloud (hcloud://…, aws:///…)".to_owned());
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = rest.split('/').collect();
    let (fine, form) = match cloud {
        // `bm-` is a dedicated server of Hetzner Robot (syself/hetzner-cloud-controller-manager).
        "hcloud" => (number(rest.strip_prefix("bm-").unwrap_or(rest)), "hcloud://NUMBER"),
        "hrobot" => (number(rest), "hrobot://NUMBER"),
        "digitalocean" => (number(rest), "digitalocean://NUMBER"),
        "aws" => (
            matches!(parts.as_slice(), ["", zone, id] if !zone.is_empty() && !id.is_empty())
                || matches!(parts.as_slice(), ["", _, _, id] if id.starts_with("fargate")),
            "aws:///ZONE/i-…",
        ),
        "gce" => (
            matches!(parts.as_slice(), [project, zone, name] if ![project, zone, name].iter().any(|p| p.is_empty())),
            "gce://PROJECT/ZONE/NAME",
        ),
        "azure" => (rest.to_ascii_lowercase().starts_with("/subscriptions/"), "azure:///subscriptions/…"),
        "vsphere" => (rest.len() == 36 && rest.split('-').count() == 5, "vsphere://UUID"),
        _ => (!rest.is_empty(), "CLOUD://ID"),
    };
    (!fine).then(|| format!("does not have the form {form}"))
}
