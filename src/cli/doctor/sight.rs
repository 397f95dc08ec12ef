//! What the agent watches through, tried from here: the kubelet's pidfd and healthz, the kernel's list of connections, the
//! container runtime by way of the helper. In the agent's own sandbox this says what the sandbox takes away.

use std::time::Duration;

use tokio::time::timeout;

use super::{Ground, line::Lines};
use crate::{
    checks::kubelet::Probe,
    helper::protocol::{Heard, RuntimeRequest},
    host::{
        helper::KubeletFacts,
        kubelet::Healthz,
        process::{self, Watched},
        sockets::SocketTable,
    },
    kubelet::healthz::Healthz as Where,
};

/// As long as the agent waits.
const HEALTHZ: Duration = Duration::from_secs(1);
/// The runtime's, in milliseconds: doctor has other things to ask.
const RUNTIME_MILLIS: u32 = 1500;

/// Looks at all of it.
pub(super) async fn look(
    lines: &Lines,
    ground: &Ground,
    kubelet: Option<i32>,
    facts: Option<&KubeletFacts>,
) {
    if let Some(pid) = kubelet {
        pidfd(lines, ground, pid);
        healthz(lines, ground, facts).await;
    }
    match SocketTable::open() {
        Ok(_) => lines.ok("sockets", "the kernel's list of connections can be asked for"),
        Err(error) => lines.warn(
            "sockets",
            format!("the kernel's list of connections: {error}"),
            "a kubelet whose connection to the API server has stalled is not noticed; does RestrictAddressFamilies= leave \
             AF_NETLINK out?",
        ),
    }
    if facts.is_some() {
        runtime(lines, ground).await;
    }
}

fn pidfd(lines: &Lines, ground: &Ground, pid: i32) {
    let opened =
        process::identify(&ground.root, pid).map(|kubelet| Watched::open(&ground.root, kubelet));
    match opened {
        Some(Ok(Some(_))) => lines.ok(
            "pidfd",
            format!("the kubelet's end would be seen, pid {pid}"),
        ),
        Some(Err(error)) => lines.fail(
            "pidfd",
            format!("the kubelet, pid {pid}, cannot be watched: {error}"),
            "Linux 5.3 or later has pidfd_open; does SystemCallFilter= leave it out?",
        ),
        None | Some(Ok(None)) => lines.skip(
            "pidfd",
            format!("the kubelet, pid {pid}, has ended just now"),
        ),
    }
}

async fn healthz(lines: &Lines, ground: &Ground, facts: Option<&KubeletFacts>) {
    let told = facts.map(|facts| &facts.healthz);
    let url = match (&ground.settings.kubelet.healthz_url, told) {
        (Some(url), _) | (None, Some(Where::Url(url))) => url.clone(),
        (None, Some(Where::Disabled)) => {
            return lines.skip("healthz", "the kubelet has none (healthzPort: 0)");
        }
        (None, None) => return lines.skip("healthz", "nobody says where the kubelet's is"),
    };
    let mut probe = Healthz::default();
    probe.start(&url);
    let answer = timeout(HEALTHZ, probe.probe()).await;
    let answer = answer.unwrap_or_else(|_| probe.overdue());
    let advice = "is the kubelet well? If it is: does PrivateNetwork=, IPAddressDeny= or RestrictAddressFamilies= keep the agent from it?";
    let why = match answer {
        Probe::Ok => return lines.ok("healthz", format!("{url} answers")),
        Probe::Status(status) => format!("answers {status}"),
        Probe::Refused => "nobody listens".to_owned(),
        Probe::Timeout => "no answer".to_owned(),
        Probe::Unreachable => "no connection".to_owned(),
        Probe::Impossible(why) => why,
    };
    lines.fail("healthz", format!("{url}: {why}"), advice);
}

async fn runtime(lines: &Lines, ground: &Ground) {
    let request = RuntimeRequest {
        timeout_millis: RUNTIME_MILLIS,
    };
    let answer = match ground.helper.runtime(request).await {
        Ok(answer) => answer,
        Err(error) => {
            return lines.warn(
                "runtime",
                error.to_string(),
                "the container runtime is not watched",
            );
        }
    };
    let socket = answer.socket.display();
    let why = match answer.heard {
        Heard::Status(status) => {
            return lines.ok(
                "runtime",
                format!("{} {} answers at {socket}", status.name, status.version),
            );
        }
        Heard::NoSocket => return lines.skip("runtime", "no socket of a container runtime"),
        Heard::Error { code, message } => format!("{code}: {message}"),
        Heard::Refused => "nobody listens".to_owned(),
        Heard::Doubted(why) | Heard::Denied(why) | Heard::Broken(why) => why,
        Heard::TimedOut { .. } => "no answer".to_owned(),
    };
    lines.warn(
        "runtime",
        format!("{socket}: {why}"),
        "is the container runtime well? If it is: does the sandbox of nodevigil-helper.service hide its socket?",
    );
}
