//! What happens to the node, step by step, and what its API server says to each.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::paper::{Paper, took};
use super::support::api::{condition, condition_status};
use super::support::node::Node;
use super::support::process::{ending, signal};
use super::support::wait_until;
use super::support::watch::NodeWatch;
use super::{PATIENCE, text};

const KUBELET: &str = "kubelet.service";
/// Keeps a kubelet that has died dead. (A masked unit would look like the operator's will.)
const KEEP_DEAD: &str = "/run/systemd/system/kubelet.service.d/90-demo.conf";

/// Where it happens, who sees it, and where it is written down.
pub(crate) struct Stage<'a> {
    pub(crate) paper: &'a mut Paper,
    pub(crate) node: &'a Node,
    pub(crate) watch: &'a NodeWatch,
}

/// `KubeletHealthy` as an event of the watch brought it.
struct Heard {
    at: Instant,
    status: String,
    reason: String,
    message: String,
    /// What `Ready` said in the same event.
    ready: String,
}

impl Heard {
    fn said(&self) -> String {
        format!("KubeletHealthy={} {}", self.status, self.reason)
    }
}

impl Stage<'_> {
    /// The agent, as its unit; returns when it was started.
    pub(crate) fn agent_starts(&mut self) -> Result<Instant> {
        self.paper.heading("The agent starts");
        let started = Instant::now();
        self.node.start_agent()?;
        self.paper
            .line_at(started, "systemctl start nodevigil.service");
        let heard = self.hear(
            started,
            "KubeletHealthy=True after the agent's start",
            |status, _| status == "True",
        )?;
        let after = took(heard.at - started);
        self.tell(&heard, &format!("after {after}"));
        self.paper.row("the agent starts", heard.said(), after);
        Ok(started)
    }

    /// A crash; systemd restarts it.
    pub(crate) fn kubelet_is_killed(&mut self) -> Result<()> {
        self.paper.heading("The kubelet is killed");
        let (killed, heard) = self.kill()?;
        let back = self.hear(
            heard.at,
            "KubeletHealthy=True after the crash",
            |status, _| status == "True",
        )?;
        let after = took(back.at - killed);
        self.tell(
            &back,
            &format!("{after} after the SIGKILL: restarted by systemd, healthy for 1 s"),
        );
        self.paper.row("  restarted by systemd", back.said(), after);
        Ok(())
    }

    /// A kubelet that lives and does nothing.
    pub(crate) fn kubelet_hangs(&mut self) -> Result<()> {
        self.paper.heading("The kubelet hangs");
        // For 15 s a Node that was just born is given time: what is sampled does not count yet.
        wait_until("the Node to be no newborn", Duration::from_secs(30), || {
            let status = self.node.status_json()?;
            let nobody = status["quiet"].as_array().is_none_or(Vec::is_empty);
            Ok(nobody.then_some(()))
        })?;
        let pid = self.node.kubelet_pid()?;
        let stopped = signal(pid, Signal::SIGSTOP)?;
        self.paper.line_at(stopped, "SIGSTOP to the kubelet");
        let heard = self.hear(stopped, "KubeletHung after a SIGSTOP", |_, reason| {
            reason == "KubeletHung"
        })?;
        let after = took(heard.at - stopped);
        self.tell(&heard, &format!("after {after}"));
        self.paper.row("SIGSTOP", heard.said(), after);
        self.status()?;

        let continued = signal(pid, Signal::SIGCONT)?;
        self.paper.line_at(continued, "SIGCONT to the kubelet");
        let heard = self.hear(
            continued,
            "KubeletHealthy=True after a SIGCONT",
            |status, _| status == "True",
        )?;
        let after = took(heard.at - continued);
        self.tell(&heard, &format!("after {after}"));
        self.paper.row("SIGCONT", heard.said(), after);
        Ok(())
    }

    /// A crash that nobody mends: how long until the control plane notices by itself.
    pub(crate) fn kubelet_stays_dead(&mut self) -> Result<()> {
        self.paper
            .heading("FULL=1: the kubelet is killed and stays dead (Restart=no)");
        self.node.sh(&format!(
            "mkdir -p $(dirname {KEEP_DEAD}) && printf '[Service]\\nRestart=no\\n' >{KEEP_DEAD} && systemctl daemon-reload"
        ))?;
        let (killed, heard) = self.kill()?;
        self.paper
            .line("waiting for the node lifecycle controller (grace 40 s)");
        let (unknown, _) = self
            .watch
            .wait_since(killed, PATIENCE * 2, |event| {
                condition_status(event, "Ready") == Some("Unknown")
            })
            .context("waited for Ready=Unknown after the kubelet's death")?;
        let after = took(unknown - killed);
        self.paper.line_at(
            unknown,
            &format!(
                "Ready=Unknown, after {after}: KubeletHealthy=False was there {:.1} s earlier",
                (unknown - heard.at).as_secs_f64()
            ),
        );
        self.paper.row(
            "  the control plane notices",
            "Ready=Unknown".to_owned(),
            after,
        );

        let started = Instant::now();
        self.node.sh(&format!(
            "rm {KEEP_DEAD} && systemctl daemon-reload && systemctl start {KUBELET}"
        ))?;
        self.paper.line_at(started, "systemctl start kubelet");
        let back = self.hear(
            started,
            "KubeletHealthy=True after the start",
            |status, _| status == "True",
        )?;
        let after = took(back.at - started);
        self.tell(&back, &format!("after {after}"));
        self.paper.row("  started again", back.said(), after);
        Ok(())
    }

    /// An operator's will is no fault.
    pub(crate) fn operator_stops_kubelet(&mut self) -> Result<()> {
        self.paper.heading("The operator stops the kubelet");
        let end = ending(self.node.kubelet_pid()?)?;
        let stopped = Instant::now();
        self.node.sh("systemctl stop kubelet")?;
        self.paper.line_at(stopped, "systemctl stop kubelet");
        let gone = end.wait(PATIENCE)?;
        let heard = self.hear(
            stopped,
            "KubeletStoppedByOperator after systemctl stop",
            |_, reason| reason == "KubeletStoppedByOperator",
        )?;
        let after = took(heard.at - stopped);
        let late = took(heard.at.saturating_duration_since(gone));
        self.tell(&heard, &format!("{late} after it was gone"));
        let events = self.watch.since(stopped);
        let was_false = |event: &Value| condition_status(event, "KubeletHealthy") == Some("False");
        ensure!(
            !events.iter().any(|(_, event)| was_false(event)),
            "KubeletHealthy was False after systemctl stop"
        );
        self.paper
            .detail("never False on the way: an operator's will is no fault");
        self.paper
            .row("systemctl stop kubelet", heard.said(), after);
        Ok(())
    }

    /// Kills the kubelet; returns when, and the first word about it.
    fn kill(&mut self) -> Result<(Instant, Heard)> {
        let inner = self.node.main_pid(KUBELET)?;
        let pid = self.node.host_pid(inner)?;
        let end = ending(pid)?;
        let killed = signal(pid, Signal::SIGKILL)?;
        let gone = end.wait(PATIENCE)?;
        let heard = self.hear(
            killed,
            "KubeletHealthy=False after a SIGKILL",
            |status, _| status == "False",
        )?;
        self.paper
            .line_at(killed, &format!("SIGKILL to the kubelet, pid {inner}"));
        self.paper.line_at(
            gone,
            &format!(
                "its pidfd is readable, {} after the SIGKILL: the kernel has torn it down",
                took(gone - killed)
            ),
        );
        let late = took(heard.at.saturating_duration_since(gone));
        self.tell(&heard, &format!("{late} after it was gone"));
        if heard.reason == "KubeletGone" {
            let refined = self.hear(heard.at, "the cause of the death", |_, reason| {
                reason == "KubeletCrashed"
            })?;
            self.tell(&refined, "the cause, when systemd had said it");
        }
        let yet = if heard.ready == "True" {
            ": the control plane does not know yet"
        } else {
            ""
        };
        self.paper
            .detail(&format!("Ready={} in the same event{yet}", heard.ready));
        self.paper.row(
            "SIGKILL",
            heard.said(),
            format!("{} ({late} after it was gone)", took(heard.at - killed)),
        );
        Ok((killed, heard))
    }

    /// The first event since `from` whose status and reason of `KubeletHealthy` are wanted.
    fn hear(
        &self,
        from: Instant,
        awaited: &str,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Result<Heard> {
        let (at, event) = self
            .watch
            .wait_since(from, PATIENCE, |event| {
                condition(event, "KubeletHealthy")
                    .is_some_and(|found| wanted(text(found, "/status"), text(found, "/reason")))
            })
            .with_context(|| format!("waited for {awaited}"))?;
        let found = condition(&event, "KubeletHealthy").context("it was there")?;
        Ok(Heard {
            at,
            status: text(found, "/status").to_owned(),
            reason: text(found, "/reason").to_owned(),
            message: text(found, "/message").to_owned(),
            ready: condition_status(&event, "Ready")
                .unwrap_or_default()
                .to_owned(),
        })
    }

    fn tell(&self, heard: &Heard, when: &str) {
        self.paper
            .line_at(heard.at, &format!("watch: {}, {when}", heard.said()));
        self.paper.detail(&format!("\"{}\"", heard.message));
    }

    /// The same on the node itself.
    fn status(&self) -> Result<()> {
        let soon = Duration::from_secs(5);
        wait_until("the status file to say so too", soon, || {
            let status = self.node.status_json()?;
            let published = !status["conditions"][0]["published_at"].is_null();
            let hung = text(&status, "/conditions/0/reason") == "KubeletHung";
            Ok((published && hung).then_some(()))
        })?;
        let (code, output) = self.node.run("nodevigil status")?;
        self.paper.line(&format!(
            "on the node: nodevigil status (exit code {code}: some condition is False)"
        ));
        self.paper.detail(&output);
        Ok(())
    }
}
