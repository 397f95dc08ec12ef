//! The metrics about the agent: whether it sees, whether it is heard, what it costs.

use super::{
    Family,
    Kind::{Counter, Gauge, Histogram, Info},
    Label,
};

pub(super) const TABLE: &[Family] = &[
    Family {
        name: "nodevigil_last_heartbeat_timestamp_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "When the API server last took the conditions; it is asked to at least each 5.5 minutes. Absent before the first time, and in the shadow.",
        samples: |now, out| {
            if let Some(at) = now.heartbeat {
                out.moment(&[], at);
            }
        },
    },
    Family {
        name: "nodevigil_rendered_timestamp_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "When this was written down, by which a text file that nobody writes any more is known.",
        samples: |now, out| out.moment(&[], now.wall),
    },
    Family {
        name: "nodevigil_cluster_clock_offset_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "By how much the node's clock is ahead of the API server's, as the Date of its answers says; up to two seconds too much. What is published has the API server's time. Absent before the first answer.",
        samples: |now, out| {
            if let Some(ahead) = now.clock_ahead {
                out.offset(&[], ahead);
            }
        },
    },
    Family {
        name: "nodevigil_peer_up",
        kind: Gauge,
        unit: None,
        labels: &[Label::Peer],
        help: "Whether the API server, the system bus, the helper, the kernel's log answers. Absent while that is not known.",
        samples: |now, out| {
            for (peer, up) in now.peers {
                if let Some(up) = up {
                    out.flag(&[peer.as_str()], up);
                }
            }
        },
    },
    Family {
        name: "nodevigil_probe_duration_seconds",
        kind: Histogram,
        unit: Some("seconds"),
        labels: &[Label::Probe],
        help: "How long it took until the answer was with the loop: of the kubelet's healthz, and of what each check asks for.",
        samples: |now, out| {
            for (probe, took) in now.counted.probes() {
                out.histogram(&[probe], took);
            }
        },
    },
    Family {
        name: "nodevigil_healthz_failures",
        kind: Counter,
        unit: None,
        labels: &[Label::Failure],
        help: "Probes of the kubelet's healthz that did not end with 200.",
        samples: |now, out| {
            for (failure, count) in now.counted.failures() {
                out.number(&[failure], count);
            }
        },
    },
    Family {
        name: "nodevigil_helper_request_duration_seconds",
        kind: Histogram,
        unit: Some("seconds"),
        labels: &[Label::Verb],
        help: "How long the helper took to answer, or the agent to give up.",
        samples: |now, out| {
            for (verb, took) in now.helper.took() {
                out.histogram(&[verb], took);
            }
        },
    },
    Family {
        name: "nodevigil_helper_requests",
        kind: Counter,
        unit: None,
        labels: &[Label::Verb, Label::Answer],
        help: "Questions to the helper by how they ended; only what has happened is here.",
        samples: |now, out| {
            let some = now.helper.outcomes().filter(|(_, _, count)| *count > 0);
            for (verb, outcome, count) in some {
                out.number(&[verb, outcome.as_str()], count);
            }
        },
    },
    Family {
        name: "nodevigil_api_request_duration_seconds",
        kind: Histogram,
        unit: Some("seconds"),
        labels: &[Label::Request],
        help: "How long the API server took to answer; of a watch, until it was open.",
        samples: |now, out| {
            for (kind, took) in now.requests.took() {
                out.histogram(&[kind.as_str()], took);
            }
        },
    },
    Family {
        name: "nodevigil_api_requests",
        kind: Counter,
        unit: None,
        labels: &[Label::Request, Label::Outcome],
        help: "Requests to the API server by what they were for and how they ended; besides ok only what has happened is here.",
        samples: |now, out| {
            let some = |(_, outcome, count): &(_, &str, u64)| *outcome == "ok" || *count > 0;
            for (kind, outcome, count) in now.requests.outcomes().filter(some) {
                out.number(&[kind.as_str(), outcome], count);
            }
        },
    },
    Family {
        name: "nodevigil_events_sent",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Requests for Events that the API server has taken.",
        samples: |now, out| out.number(&[], now.events_sent),
    },
    Family {
        name: "nodevigil_events_dropped",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Events that were never told: too many waited, or for too long.",
        samples: |now, out| out.number(&[], now.events_dropped),
    },
    Family {
        name: "nodevigil_log_lines_dropped",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Lines of the agent's own log that the journal did not take.",
        samples: |now, out| out.number(&[], now.log_lines_dropped),
    },
    Family {
        name: "nodevigil_notifications_dropped",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Words to systemd that it did not take.",
        samples: |now, out| out.number(&[], now.notifications_dropped),
    },
    Family {
        name: "nodevigil_dbus_signals_dropped",
        kind: Counter,
        unit: None,
        labels: &[Label::Cause],
        help: "Messages on the system bus that were not believed, by cause: not from systemd (sender), too long (size), or systemd's and not as they should be (kind, body).",
        samples: |now, out| {
            for (cause, count) in now.bus_dropped {
                out.number(&[cause.as_str()], count);
            }
        },
    },
    Family {
        name: "nodevigil_kmsg_records_lost",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Records of the kernel's log that were overwritten before they were read.",
        samples: |now, out| out.number(&[], now.counted.kmsg_lost()),
    },
    Family {
        name: "nodevigil_loop_lateness_seconds",
        kind: Histogram,
        unit: Some("seconds"),
        labels: &[],
        help: "How late the loop came to what was due.",
        samples: |now, out| out.histogram(&[], now.counted.lateness()),
    },
    Family {
        name: "nodevigil_loop_turn_seconds",
        kind: Histogram,
        unit: Some("seconds"),
        labels: &[],
        help: "How long a turn of the loop took; whatever came meanwhile has waited for it.",
        samples: |now, out| out.histogram(&[], now.counted.turns()),
    },
    Family {
        name: "nodevigil_process_resident_memory_bytes",
        kind: Gauge,
        unit: Some("bytes"),
        labels: &[],
        help: "The agent's resident memory; its unit allows 64 MiB.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.number(&[], process.resident_bytes);
            }
        },
    },
    Family {
        name: "nodevigil_process_locked_memory_bytes",
        kind: Gauge,
        unit: Some("bytes"),
        labels: &[],
        help: "The agent's memory that the kernel keeps once it was touched (VmLck); 0: its pages are not locked.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.number(&[], process.locked_bytes);
            }
        },
    },
    Family {
        name: "nodevigil_process_major_faults",
        kind: Counter,
        unit: None,
        labels: &[],
        help: "Pages of the agent that were read from a disk since it started; with its pages locked they come to an end.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.number(&[], process.major_faults);
            }
        },
    },
    Family {
        name: "nodevigil_process_cpu_seconds",
        kind: Counter,
        unit: Some("seconds"),
        labels: &[],
        help: "The agent's user and system time.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.seconds(&[], process.cpu);
            }
        },
    },
    Family {
        name: "nodevigil_process_open_fds",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "The agent's open file descriptors.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.number(&[], process.open_fds);
            }
        },
    },
    Family {
        name: "nodevigil_process_threads",
        kind: Gauge,
        unit: None,
        labels: &[],
        help: "The agent's threads; the unit allows 16.",
        samples: |now, out| {
            if let Some(process) = now.process {
                out.number(&[], process.threads);
            }
        },
    },
    Family {
        name: "nodevigil_process_start_time_seconds",
        kind: Gauge,
        unit: Some("seconds"),
        labels: &[],
        help: "When the agent started; every counter counts from there.",
        samples: |now, out| out.moment(&[], now.started),
    },
    Family {
        name: "nodevigil_build",
        kind: Info,
        unit: None,
        labels: &[Label::Version],
        help: "The agent's version.",
        samples: |now, out| out.info(&[now.version]),
    },
];
