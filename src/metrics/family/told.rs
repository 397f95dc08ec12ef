//! The metrics about the node: what the conditions say, and what has happened.

use super::{
    super::snapshot::{QUIETS, STATUSES, status_word},
    Family,
    Kind::{Counter, Gauge, Info},
    Label,
};

pub(super) const TABLE: &[Family] = &[
    Family {
        name: "nodevigil_condition_status",
        kind: Gauge,
        unit: None,
        labels: &[Label::Condition, Label::Status],
        help: "Whether the condition has this status, as kube_node_status_condition has it: of the three one is 1.",
        samples: |now, out| {
            for (kind, verdict) in &now.conditions {
                for status in STATUSES {
                    let labels = [kind.as_str(), status_word(status)];
                    out.flag(&labels, kind.shown(verdict.status) == status);
                }
            }
        },
    },
    Family {
        name: "nodevigil_condition_reason",
        kind: Info,
        unit: None,
        labels: &[Label::Condition, Label::Reason, Label::Severity],
        help: "The condition's reason; a reason of severity warning stands beside the status true.",
        samples: |now, out| {
            for (kind, verdict) in &now.conditions {
                let reason = verdict.reason;
                out.info(&[kind.as_str(), reason.as_str(), reason.severity().as_str()]);
            }
        },
    },
    Family {
        name: "nodevigil_condition_last_transition_timestamp_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[Label::Condition],
        help: "When the condition's status last changed: its lastTransitionTime, as the Node shows it where it does.",
        samples: |now, out| {
            for (kind, at) in &now.transitions {
                out.moment(&[kind.as_str()], *at);
            }
        },
    },
    Family {
        name: "nodevigil_condition_published",
        kind: Gauge,
        unit: None,
        labels: &[Label::Condition],
        help: "Whether the Node has the condition as it stands here.",
        samples: |now, out| {
            for (kind, _) in &now.conditions {
                out.flag(&[kind.as_str()], now.published.contains(kind));
            }
        },
    },
    Family {
        name: "nodevigil_reason",
        kind: Counter,
        unit: None,
        labels: &[Label::Condition, Label::Reason],
        help: "How often the condition has come to this reason; only reasons that were seen are here.",
        samples: |now, out| {
            for row in now.counted.reasons() {
                out.number(&[row.kind.as_str(), row.reason.as_str()], row.count);
            }
        },
    },
    Family {
        name: "nodevigil_news",
        kind: Counter,
        unit: None,
        labels: &[Label::News],
        help: "How often something happened that is an Event and no condition.",
        samples: |now, out| {
            for (name, count) in now.counted.news() {
                out.number(&[name], count);
            }
        },
    },
    Family {
        name: "nodevigil_kubelet_client_certificate_expiration_timestamp_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "When the client certificate expires that the kubelet shows to the API server. Absent without such a certificate.",
        samples: |now, out| {
            if let Some(at) = now.counted.certificate_ends() {
                out.moment(&[], at);
            }
        },
    },
    Family {
        name: "nodevigil_kernel_hung_task_detection",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "Whether the kernel logs hung tasks: 0 if kernel.hung_task_timeout_secs is 0 or kernel.hung_task_warnings is used up. Absent on a kernel without the detection.",
        samples: |now, out| {
            if let Some(is_on) = now.counted.hung_task_detection() {
                out.flag(&[], is_on);
            }
        },
    },
    Family {
        name: "nodevigil_quiet",
        kind: Gauge,
        unit: None,
        labels: &[Label::Quiet],
        help: "Whether somebody asks for quiet: by his will nothing becomes False (stand-down), or for a moment nothing but a fact flips a status (hold).",
        samples: |now, out| {
            for (quiet, word) in QUIETS {
                out.flag(&[word], now.quiet.contains(&quiet));
            }
        },
    },
    Family {
        name: "nodevigil_shadow",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "1: nothing is written to the API ([kubernetes] publish = none), and the conditions here are what would have been published.",
        samples: |now, out| out.flag(&[], now.shadow),
    },
    Family {
        name: "nodevigil_node",
        kind: Info,
        unit: None,
        labels: &[Label::Node],
        help: "The name of the Node, to join with the metrics of others.",
        samples: |now, out| out.info(&[&now.node]),
    },
];
