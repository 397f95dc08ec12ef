//! CL005: the providerID that the kubelet gives its Node.

use super::api;
use crate::{
    kubelet::{location::Location, snapshot::Snapshot},
    rules::{Finding, Report, Severity, at},
};

/// The providerID that the kubelet gives its Node, and where it says so.
pub(super) fn given_provider_id(snapshot: &Snapshot) -> Option<(String, Location)> {
    if let Some(used) = snapshot.flags.last("provider-id") {
        let place = at::value_part(snapshot, used, 0, used.value.len());
        return Some((used.value.clone(), place)).filter(|(id, _)| !id.is_empty());
    }
    let node = snapshot.config.get("providerID")?;
    Some((node.text()?, node.at.clone())).filter(|(id, _)| !id.is_empty())
}

pub(super) fn provider_id(snapshot: &Snapshot, report: &mut Report) {
    let Some((id, place)) = given_provider_id(snapshot) else {
        return api::provider_id_absent(snapshot, report);
    };
    if let Some(reason) = malformed(&id) {
        report.add(
            Finding::new(
                "CL005",
                Severity::Error,
                place.clone(),
                format!("providerID is {id}: {reason}; nobody will match this Node to its server"),
            )
            .fix(format!("correct it at {place}")),
        );
        return;
    }
    let Some(cloud) = &snapshot.cloud else {
        report.not_checked("CL005", "this machine's id, from the cloud's metadata service");
        return;
    };
    let own = [&cloud.instance_id, &cloud.name].map(Option::as_deref);
    let expected = snapshot.intent.provider_id.as_deref();
    let last = id.rsplit('/').next().unwrap_or_default();
    let is_own = own.iter().flatten().any(|known| known.eq_ignore_ascii_case(last));
    if expected == Some(id.as_str()) || is_own {
        return;
    }
    let Some(own_id) = cloud.instance_id.as_deref() else {
        report.not_checked("CL005", "this machine's id, from the cloud's metadata service");
        return;
    };
    report.add(
        Finding::new(
            "CL005",
            Severity::Error,
            place.clone(),
            format!(
                "providerID is {id}, this machine is {own_id}: the autoscaler will take this Node for another server"
            ),
        )
        .fix(format!(
            "correct the template that writes {place}; of a Node that exists, delete it first: its providerID cannot \
             be changed"
        )),
    );
}

/// Why a providerID cannot be matched; only forms that are documented are judged.
fn malformed(id: &str) -> Option<String> {
    let Some((cloud, rest)) = id.split_once("://") else {
        return Some("it has no cloud in front (hcloud://…, aws:///…)".to_owned());
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = rest.split('/').collect();
    let (fine, form) = match cloud {
        "hcloud" => (number(rest), "hcloud://NUMBER"),
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
    (!fine).then(|| format!("it should have the form {form}"))
}
