//! The metrics of the real agent, scraped by curl on its node and read by Prometheus' own parsers.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{AGENT, SOON, Scene};
use crate::support::{tools, wait_until};
use crate::trial;

const SOCKET: &str = "/run/nodevigil/metrics.sock";
const TEXTFILE: &str = "/run/nodevigil/nodevigil.prom";
const SETTINGS: &str = "[metrics]\ntextfile_dir = \"/run/nodevigil\"\ntextfile_interval_secs = 5\n";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("metrics::scrape", a_scrape_tells_what_happens),
        trial("metrics::textfile", the_text_file_tells_it_too),
        trial("metrics::hung_scrapers", scrapers_that_hang_do_no_harm),
        trial("metrics::over_tcp", prometheus_gets_them_over_tcp),
    ]
}

/// An exposition.
struct Exposition(String);

impl Exposition {
    /// Scrapes the agent of the node, as curl does it.
    fn scrape(scene: &Scene) -> Result<Self> {
        let text = scene.node.sh(&format!(
            "curl -sS --fail --max-time 20 --unix-socket {SOCKET} http://localhost/metrics"
        ))?;
        Ok(Self(text))
    }

    /// A sample's value, by name and labels as they are written.
    fn value(&self, sample: &str) -> Option<f64> {
        let rest = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
        self.0.lines().find_map(rest)
    }

    fn is(&self, sample: &str, value: f64) -> Result<()> {
        let found = self.value(sample);
        ensure!(found == Some(value), "{sample} is {found:?}:\n{}", self.0);
        Ok(())
    }

    /// What a program that reads it on its standard input says.
    fn read_by(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut child = Command::new(tools::prometheus(program)?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("its input")?;
        input.write_all(self.0.as_bytes())?;
        drop(input);
        let done = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success() && complaint.is_empty(),
            "{program} {arguments:?}: {said}{complaint}:\n{}",
            self.0
        );
        Ok(said)
    }
}

fn status(status: &str) -> String {
    format!("nodevigil_condition_status{{condition=\"KubeletHealthy\",status=\"{status}\"}}")
}

fn reason_count(reason: &str) -> String {
    format!("nodevigil_reason_total{{condition=\"KubeletHealthy\",reason=\"{reason}\"}}")
}

const PROBES: &str = "nodevigil_probe_duration_seconds_count{probe=\"healthz\"}";
const PUBLISHED: &str = "nodevigil_condition_published{condition=\"KubeletHealthy\"}";
const HEARTBEAT: &str = "nodevigil_last_heartbeat_timestamp_seconds";

/// The exposition in which `wanted` holds.
fn scraped_when(
    scene: &Scene,
    what: &str,
    wanted: impl Fn(&Exposition) -> bool,
) -> Result<Exposition> {
    wait_until(what, SOON, || {
        let now = Exposition::scrape(scene)?;
        Ok(wanted(&now).then_some(now))
    })
}

fn a_scrape_tells_what_happens() -> Result<()> {
    Scene::healthy("metrics-scrape")?.play(|scene| {
        // While an apply is on its way nothing is published as it stands: at the start one follows the other.
        let before = scraped_when(scene, "a probe, and all is published", |now| {
            now.value(PROBES).is_some() && now.value(PUBLISHED) == Some(1.0)
        })?;
        before.is(&status("true"), 1.0)?;
        before.is(&status("false"), 0.0)?;
        before.is("nodevigil_shadow", 0.0)?;
        before.is(&format!("nodevigil_node_info{{node=\"{}\"}}", scene.node.name()), 1.0)?;
        for peer in ["api", "bus", "helper"] {
            before.is(&format!("nodevigil_peer_up{{peer=\"{peer}\"}}"), 1.0)?;
        }
        let (now, beat) = (
            before.value("nodevigil_rendered_timestamp_seconds").context("a moment")?,
            before.value(HEARTBEAT).context("a heartbeat")?,
        );
        ensure!((0.0..60.0).contains(&(now - beat)), "a heartbeat at {beat}, and it is {now}");
        let samples: u32 = before.read_by("openmetrics", &[])?.trim().parse()?;
        ensure!(samples > 50, "{samples} samples");

        let told = scene.kill_for_good()?;
        let dead = scraped_when(scene, "the death", |now| now.value(&status("false")) == Some(1.0))?;
        let late = told.at.elapsed();
        dead.is(&status("true"), 0.0)?;
        dead.is(&reason_count("KubeletCrashed"), 1.0)?;
        let reason = "nodevigil_condition_reason_info{condition=\"KubeletHealthy\",reason=\"KubeletCrashed\",severity=\"failed\"}";
        dead.is(reason, 1.0)?;
        dead.read_by("openmetrics", &[])?;
        ensure!(late < Duration::from_secs(5), "{late:?} after the Node knew");

        scene.revive()?;
        let probes = dead.value(PROBES).context("probes")?;
        let well = scraped_when(scene, "more probes", |now| {
            now.value(PROBES).is_some_and(|count| count > probes)
                && now.value(&status("true")) == Some(1.0)
        })?;
        well.is(&reason_count("KubeletCrashed"), 1.0)?;
        let sum = well
            .value("nodevigil_probe_duration_seconds_sum{probe=\"healthz\"}")
            .context("a sum")?;
        ensure!(sum > 0.0, "{sum}");

        // Not everybody may connect; and the next life replaces the socket of the last.
        let (code, said) = scene.node.run(&format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups curl -sS --unix-socket {SOCKET} http://localhost/metrics"
        ))?;
        ensure!(code != 0 && !said.contains("nodevigil_"), "nobody may scrape: {said}");
        crate::agent::restart(scene, "systemctl restart nodevigil")?;
        let anew = Exposition::scrape(scene)?;
        ensure!(anew.value(&reason_count("KubeletCrashed")).is_none(), "it counts anew");
        let file = scene.node.status_json()?;
        ensure!(file["metrics_socket"] == SOCKET, "{file:#}");
        Ok(())
    })
}

fn the_text_file_tells_it_too() -> Result<()> {
    let scene = Scene::healthy_with("metrics-textfile", |node| {
        node.config("60-metrics.toml", SETTINGS)
    })?;
    scene.play(|scene| {
        scene.kill_for_good()?;
        let file = wait_until("the text file to tell of the death", SOON, || {
            let file = Exposition(scene.node.read(TEXTFILE).unwrap_or_default());
            Ok((file.value(&status("false")) == Some(1.0)).then_some(file))
        })?;
        file.read_by("promtool", &["check", "metrics"])?;
        let samples = file.read_by("openmetrics", &["text"])?;
        let socket = Exposition(scene.node.sh(&format!(
            "curl -sS --fail -H 'Accept: text/plain' --unix-socket {SOCKET} http://localhost/metrics"
        ))?);
        socket.read_by("promtool", &["check", "metrics"])?;
        let same = socket.read_by("openmetrics", &["text"])?;
        ensure!(samples == same, "{samples} samples in the file, {same} by the socket");
        let left = scene.node.sh("ls /run/nodevigil")?;
        ensure!(!left.contains("prom.new"), "{left}");
        Ok(())
    })
}

/// More of them than there are places, for longer than a client may take; a kubelet dies meanwhile.
fn scrapers_that_hang_do_no_harm() -> Result<()> {
    Scene::healthy("metrics-hung")?.play(|scene| {
        // By then it has every connection that it keeps. Only sockets are counted: where the host's memory moves meanwhile,
        // the tables of the control groups are opened too.
        let config = "nodevigil_condition_last_transition_timestamp_seconds{condition=\"KubeletConfigValid\"}";
        scraped_when(scene, "all checks to have run", |now| now.value(config).is_some())?;
        let sockets = || -> Result<u32> {
            let pid = scene.property(AGENT, "MainPID")?;
            let count = scene.node.sh(&format!("ls -l /proc/{pid}/fd | grep -c socket:"))?;
            Ok(count.trim().parse()?)
        };
        let open = sockets()?;
        let socket = format!("/proc/{}/root{SOCKET}", scene.node.pid1());
        let connect = || UnixStream::connect(&socket).with_context(|| socket.clone());
        let mut hung = Vec::new();
        for index in 0..12 {
            let mut stream = connect()?;
            // A third says nothing, a third half of it, a third asks and does not read.
            let said = ["", "GET /metrics HT", "GET /metrics HTTP/1.1\r\n\r\n"][index % 3];
            stream.write_all(said.as_bytes())?;
            hung.push(stream);
        }
        wait_until("them to be waited for", SOON, || Ok((sockets()? > open + 2).then_some(())))?;
        let death = scene.kill_kubelet()?;
        let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
        let late = told.at - death.gone;
        ensure!(late < Duration::from_secs(2), "told {late:?} after the end");
        let asked = Instant::now();
        let after = Exposition::scrape(scene)?;
        let waited = asked.elapsed();
        ensure!(
            waited < Duration::from_secs(16),
            "answered after {waited:?}"
        );
        let all = after
            .value("nodevigil_loop_lateness_seconds_count")
            .context("lateness")?;
        after.is("nodevigil_loop_lateness_seconds_bucket{le=\"1.0\"}", all)?;
        drop(hung);
        // The new kubelet's probe may have one of its own.
        wait_until("as few sockets as before", SOON, || {
            let now = sockets()?;
            Ok((now <= open + 2).then_some(()))
        })?;
        ensure!(scene.property(AGENT, "NRestarts")? == "0");
        Ok(())
    })
}

/// By the units of packaging/monitoring, and they let nobody else through.
fn prometheus_gets_them_over_tcp() -> Result<()> {
    let units = ["socket", "service"].map(|kind| {
        let path = format!("packaging/monitoring/nodevigil-metrics.{kind}");
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(&path);
        (kind, std::fs::read_to_string(file).context(path))
    });
    let scene = Scene::healthy_with("metrics-tcp", |node| {
        units.iter().fold(node, |node, (kind, text)| {
            let path = format!("/etc/systemd/system/nodevigil-metrics.{kind}");
            node.file(&path, text.as_deref().unwrap_or_default(), 0o644)
        })
    })?;
    scene.play(|scene| {
        scene.node.sh("systemctl start nodevigil-metrics.socket")?;
        let get = "curl -sS --fail --max-time 10 http://127.0.0.1:9717/metrics";
        for _ in 0..3 {
            let text = Exposition(scene.node.sh(get)?);
            text.is(&status("true"), 1.0)?;
            text.read_by("openmetrics", &[])?;
        }
        Ok(())
    })
}
