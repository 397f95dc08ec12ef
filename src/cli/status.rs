//! `nodevigil status`: the conditions, why, since when, and how the daemon itself is doing, from its status file.
#![expect(
    clippy::disallowed_methods,
    reason = "a subcommand reads the environment for itself"
)]

mod peers;
mod told;

use std::{
    env,
    fmt::Write as _,
    io::{self, ErrorKind, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use jiff::{SignedDuration, Timestamp};

use self::peers::{api, identity, peer};
use crate::{
    clock::Clock,
    desired, health,
    host::files::Root,
    status::{self, Condition, ConditionStatus, IdentityKind, Quiet, QuietKind, StatusFile},
};

/// The daemon writes once a minute; after two missed times and some slack it is not there any more.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(150);

/// No condition is False.
const EXIT_GOOD: u8 = 0;
/// Some condition is False.
const EXIT_BAD: u8 = 1;
/// No file, an old one, or one that cannot be read.
const EXIT_CANNOT_TELL: u8 = 2;

/// Show what the daemon knows: conditions, identity, API, helper, bus, kubelet.
///
/// Exit code: 0 no condition is False, 1 some condition is False, 2 cannot tell (no daemon, or it has stopped writing).
#[derive(Debug, Clone, clap::Args)]
pub struct Status {
    /// Print the daemon's status file, with "stale" added, as JSON.
    #[arg(long)]
    json: bool,
    /// The daemon's runtime directory.
    #[arg(long, value_name = "DIR", hide = true)]
    dir: Option<PathBuf>,
}

impl Status {
    /// Prints, and says by the exit code how things are.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = self
            .dir
            .unwrap_or_else(|| status::runtime_dir(env::var_os("RUNTIME_DIRECTORY").as_deref()));
        let (file, json) = match StatusFile::read_with_json(&Root::default(), &dir) {
            Ok(read) => read,
            Err(error) => {
                let hint = if error.is_not_found() {
                    "; is nodevigil.service running?"
                } else {
                    ""
                };
                print(&mut io::stderr().lock(), &format!("error: {error}{hint}\n"))?;
                return Ok(ExitCode::from(EXIT_CANNOT_TELL));
            }
        };
        let now = Clock.now().wall;
        let mut out = io::stdout().lock();
        let text = if self.json {
            as_json(json, is_stale(&file, now))?
        } else {
            let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colour = !no_color && out.is_terminal();
            table(&file, now, colour)
        };
        print(&mut out, &text)?;
        Ok(ExitCode::from(exit_code(&file, now)))
    }
}

/// Writes; a reader that has gone away (`| head`) is nobody's fault.
pub(super) fn print(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn as_json(
    mut json: serde_json::Map<String, serde_json::Value>,
    stale: bool,
) -> serde_json::Result<String> {
    json.insert("stale".to_owned(), stale.into());
    Ok(serde_json::to_string_pretty(&json)? + "\n")
}

/// A file from the future is as little to be believed as an old one: the clock was set.
fn is_stale(file: &StatusFile, now: Timestamp) -> bool {
    now.duration_since(file.written_at).abs() > STALE_AFTER
}

fn exit_code(file: &StatusFile, now: Timestamp) -> u8 {
    if is_stale(file, now) {
        EXIT_CANNOT_TELL
    } else if file.conditions.iter().any(is_bad) {
        EXIT_BAD
    } else {
        EXIT_GOOD
    }
}

fn table(file: &StatusFile, now: Timestamp, colour: bool) -> String {
    let mut out = String::new();
    if is_stale(file, now) {
        let ago = age(file.written_at, now);
        let line = format!("the daemon has not written for {ago}: is it running?");
        out += &paint(colour, YELLOW, &line);
        out += "\n\n";
    }
    conditions(&mut out, file, now, colour);
    out.push('\n');
    told::news(&mut out, file, now, colour);
    for (name, value) in facts(file, now) {
        writeln!(out, "{name:<9} {}", plain(&value)).expect("writing to a String cannot fail");
    }
    out
}

fn conditions(out: &mut String, file: &StatusFile, now: Timestamp, colour: bool) {
    if file.conditions.is_empty() {
        *out += "no condition yet: no check has come to a result\n";
        return;
    }
    let mut rows = vec![["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"].map(str::to_owned)];
    rows.extend(file.conditions.iter().map(|condition| {
        [
            plain(&condition.kind),
            status_of(condition),
            plain(&condition.reason),
            condition
                .last_transition_time
                .map_or_else(|| "-".to_owned(), |since| age(since, now)),
            plain(&condition.message) + unpublished(file, condition),
        ]
    }));
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count() + 3);
            // The first row is the head.
            let shade = index.checked_sub(1).filter(|_| column == 1);
            *out += &match shade {
                Some(index) => paint(colour, shade_of(&file.conditions[index]), cell),
                None => cell.clone(),
            };
            *out += &gap;
        }
        *out += &row[4];
        out.push('\n');
        if let Some(index) = index.checked_sub(1) {
            other_names(out, &file.conditions[index], now);
        }
    }
}

/// The status, and that its reason is a hint.
fn status_of(condition: &Condition) -> String {
    let hint = if is_hint(condition) { ", hint" } else { "" };
    format!("{:?}{hint}", condition.status)
}

fn is_hint(condition: &Condition) -> bool {
    condition.severity == "warning"
}

/// Whether it tells of a problem: of nearly all of them `False` is bad.
fn is_bad(condition: &Condition) -> bool {
    let published = desired::PublishedType::parse(&condition.kind);
    let bad = published.map_or(health::Status::False, |published| published.spec().bad);
    condition.status
        == match bad {
            health::Status::True => ConditionStatus::True,
            _ => ConditionStatus::False,
        }
}

/// Under which names the Node has a condition, as far as that goes without saying otherwise.
fn other_names(out: &mut String, condition: &Condition, now: Timestamp) {
    for name in &condition.published_as {
        let is_own = name.kind == condition.kind;
        if is_own && name.refused.is_none() {
            continue;
        }
        let since = name
            .last_transition_time
            .map_or_else(String::new, |since| format!(" for {}", age(since, now)));
        let why = match &name.refused {
            Some(why) => format!(": not published, {why}"),
            None => String::new(),
        };
        let (kind, status, dialect) = (&name.kind, name.status, &name.dialect);
        let line = format!("as {kind} ({dialect}) {status:?}{since}{why}");
        writeln!(out, "  {}", plain(&line)).expect("writing to a String cannot fail");
    }
}

/// Marks what the Node does not have yet, where it should have it.
fn unpublished(file: &StatusFile, condition: &Condition) -> &'static str {
    if condition.published_as.is_empty()
        && !file.conditions.iter().all(|c| c.published_as.is_empty())
    {
        return " (published under no name)";
    }
    let none = file.identity.kind == IdentityKind::None || file.shadow;
    match condition.published_at {
        None if !none => " (not yet on the Node)",
        _ => "",
    }
}

fn facts(file: &StatusFile, now: Timestamp) -> Vec<(&'static str, String)> {
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut facts = vec![
        ("node", or_unknown(&file.node)),
        ("identity", identity(file)),
        ("API", api(file, now)),
        ("helper", peer(&file.helper)),
        ("bus", peer(&file.bus)),
        ("kubelet", kubelet(file, now)),
    ];
    facts.extend(file.quiet.iter().map(|quiet| ("quiet", held_back(quiet))));
    let ignored = file.ignored_requests.iter();
    facts.extend(ignored.map(|text| ("quiet", text.clone())));
    facts.extend(told::turned_down(&file.turned_down).map(|text| ("reasons", text)));
    facts.extend(told::taints(&file.taints).map(|text| ("taints", text)));
    facts.extend(told::events(&file.events).map(|text| ("events", text)));
    facts.extend(file.config_refused.clone().map(|text| ("config", text)));
    if file.shadow {
        facts.push((
            "shadow",
            "nothing is written: publish = \"none\"".to_owned(),
        ));
    }
    let mut daemon = vec![format!("version {}", file.agent_version)];
    daemon.extend(
        file.started_at
            .map(|started| format!("running for {}", age(started, now))),
    );
    daemon.extend(
        file.locked_bytes
            .map(|bytes| format!("{} KiB locked", bytes / 1024)),
    );
    facts.push(("daemon", daemon.join(", ")));
    facts.extend(
        file.metrics_socket
            .as_ref()
            .map(|socket| ("metrics", socket.display().to_string())),
    );
    if file.log_lines_dropped > 0 {
        facts.push((
            "log",
            format!("{} lines were dropped", file.log_lines_dropped),
        ));
    }
    facts
}

fn held_back(quiet: &Quiet) -> String {
    let how = match quiet.kind {
        QuietKind::StandDown => "standing down: nothing becomes False",
        QuietKind::Hold => "holding: nothing flips for the moment",
        QuietKind::Unknown => "held back",
    };
    format!("{how}: {}", quiet.by)
}

fn kubelet(file: &StatusFile, now: Timestamp) -> String {
    let kubelet = &file.kubelet;
    let state = match kubelet.state.as_str() {
        "" => "unknown",
        state => state,
    };
    let mut parts = vec![match kubelet.since {
        Some(since) => format!("{state} for {}", age(since, now)),
        None => state.to_owned(),
    }];
    parts.extend(kubelet.pid.map(|pid| format!("pid {pid}")));
    parts.extend(kubelet.unit.clone());
    parts.extend(kubelet.carried.clone());
    parts.extend(kubelet.healthz_url.clone());
    let ends = kubelet.client_certificate_expires_at;
    let ends = ends.filter(|_| kubelet.client_certificate_expires_soon);
    parts.extend(ends.map(|at| {
        let apart = age(at, now);
        if at > now {
            format!("its client certificate expires in {apart}")
        } else {
            format!("its client certificate expired {apart} ago")
        }
    }));
    parts.join(", ")
}

fn with_detail(text: &str, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("{text}: {detail}"),
        None => text.to_owned(),
    }
}

/// How long ago, as kubectl says it: the largest unit, and the next one while the first is small.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().abs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}m", minutes % 60),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// One line without control characters: what others wrote must not steer the terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";

fn shade_of(condition: &Condition) -> &'static str {
    match condition.status {
        _ if is_hint(condition) => YELLOW,
        ConditionStatus::Unknown => YELLOW,
        _ if is_bad(condition) => RED,
        _ => GREEN,
    }
}

fn paint(colour: bool, shade: &str, text: &str) -> String {
    if colour {
        format!("{shade}{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ApiState, PeerState};
    use crate::status::{News, PublishedAs};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn condition(kind: &str, status: ConditionStatus, reason: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            severity: String::new(),
            message: "killed by signal 9\x1b[2J\nafter 3 min".to_owned(),
            last_transition_time: Some(at("2026-11-21T08:55:00Z")),
            published_at: Some(at("2026-11-21T08:55:00Z")),
            published_as: vec![PublishedAs {
                kind: kind.to_owned(),
                dialect: "native".to_owned(),
                status,
                last_transition_time: None,
                refused: None,
            }],
        }
    }

    fn file() -> StatusFile {
        let mut file = StatusFile::new(at("2026-11-21T09:00:00Z"));
        file.agent_version = "1.2.3".to_owned();
        file.started_at = Some(at("2026-11-20T09:00:00Z"));
        file.node = Some("worker-1".to_owned());
        file.identity.kind = IdentityKind::Kubelet;
        file.identity.detail = Some("system:node:worker-1".to_owned());
        file.api.state = ApiState::Retrying;
        file.api.last_success_at = Some(at("2026-11-21T08:58:00Z"));
        file.api.last_error = Some("10.0.0.1:6443: connection refused".to_owned());
        file.api.failures = 4;
        file.api.clock_ahead_secs = Some(-2400);
        file.helper.state = PeerState::Ok;
        file.bus.state = PeerState::Unavailable;
        file.bus.detail = Some("/run/dbus/system_bus_socket: not there".to_owned());
        file.kubelet.state = "exited".to_owned();
        file.kubelet.unit = Some("kubelet.service".to_owned());
        file.kubelet.healthz_url = Some("http://127.0.0.1:10248/healthz".to_owned());
        file.kubelet.since = Some(at("2026-11-21T08:55:00Z"));
        file.locked_bytes = Some(6_291_456);
        file.conditions = vec![
            condition("KubeletHealthy", ConditionStatus::False, "KubeletCrashed"),
            condition(
                "NodeStorageHealthy",
                ConditionStatus::True,
                "StorageIsHealthy",
            ),
        ];
        file.conditions[1].message = "writes take 3 ms".to_owned();
        file.conditions[1].published_at = None;
        file
    }

    #[test]
    fn a_certificate_is_shown_while_its_end_is_near() {
        let mut file = file();
        let now = at("2026-11-21T09:00:00Z");
        file.kubelet.client_certificate_expires_at = Some(at("2026-11-24T09:00:00Z"));
        assert!(!kubelet(&file, now).contains("certificate"));
        file.kubelet.client_certificate_expires_soon = true;
        let line = kubelet(&file, now);
        assert!(
            line.ends_with(", its client certificate expires in 3d0h"),
            "{line}"
        );
        let line = kubelet(&file, at("2026-11-25T09:00:00Z"));
        assert!(
            line.ends_with(", its client certificate expired 24h ago"),
            "{line}"
        );
    }

    #[test]
    fn what_is_ignored_and_what_is_turned_down_is_shown() {
        let mut file = file();
        let is_said = |file: &StatusFile, word: &str, text: &str| {
            let facts = facts(file, at("2026-11-21T09:00:00Z"));
            facts.contains(&(word, text.to_owned()))
        };
        let ignored = "ignored: annotation nodevigil.io/pause since 2026-11-19T09:00:00Z, longer than max_pause_secs";
        assert!(!is_said(&file, "quiet", ignored));
        file.ignored_requests = vec![ignored.to_owned()];
        assert!(is_said(&file, "quiet", ignored));
        let pair = |reason: &str, word: &str| (reason.to_owned(), word.to_owned());
        file.turned_down = [
            pair("KernelOopsRepeated", "off"),
            pair("KubeletCrashed", "warning"),
        ]
        .into();
        let text = "KernelOopsRepeated is off, KubeletCrashed is a warning only, by [reasons]";
        assert!(is_said(&file, "reasons", text));
    }

    #[test]
    fn other_names_taints_and_events_are_shown_where_there_are_any() {
        let mut file = file();
        let since = Some(at("2026-11-21T08:59:00Z"));
        let name = |kind: &str, dialect: &str, status, refused: Option<&str>| PublishedAs {
            kind: kind.to_owned(),
            dialect: dialect.to_owned(),
            status,
            last_transition_time: since,
            refused: refused.map(str::to_owned),
        };
        file.conditions[0].published_as.extend([
            name("ContainerRuntimeReady", "eks", ConditionStatus::False, None),
            name(
                "KubeletUnhealthy",
                "npd",
                ConditionStatus::True,
                Some("left to the field manager x, which had it first"),
            ),
        ]);
        file.conditions[1].published_as.clear();
        file.taints.on_node = vec!["a/nodevigil-b=C:NoSchedule".to_owned()];
        file.taints.problem = Some("403 Forbidden".to_owned());
        file.events.sent = 3;
        file.events.dropped = 2;
        file.shadow = true;
        insta::assert_snapshot!(table(&file, at("2026-11-21T09:00:30Z"), false), @r#"
    CONDITION            STATUS   REASON             SINCE   MESSAGE
    KubeletHealthy       False    KubeletCrashed     5m30s   killed by signal 9 [2J after 3 min
      as ContainerRuntimeReady (eks) False for 90s
      as KubeletUnhealthy (npd) True for 90s: not published, left to the field manager x, which had it first
    NodeStorageHealthy   True     StorageIsHealthy   5m30s   writes take 3 ms (published under no name)

    node      worker-1
    identity  the kubelet's: system:node:worker-1
    API       retrying, last success 2m30s ago, 4 failures since, this machine's clock is 2400 s behind the API server's: 10.0.0.1:6443: connection refused
    helper    ok
    bus       unavailable: /run/dbus/system_bus_socket: not there
    kubelet   exited for 5m30s, kubelet.service, http://127.0.0.1:10248/healthz
    taints    a/nodevigil-b=C:NoSchedule, 403 Forbidden
    events    3 told, 2 could not be told
    shadow    nothing is written: publish = "none"
    daemon    version 1.2.3, running for 24h, 6144 KiB locked
    "#);
    }

    #[test]
    fn a_table_for_people() {
        insta::assert_snapshot!(table(&file(), at("2026-11-21T09:00:30Z"), false), @r#"
        CONDITION            STATUS   REASON             SINCE   MESSAGE
        KubeletHealthy       False    KubeletCrashed     5m30s   killed by signal 9 [2J after 3 min
        NodeStorageHealthy   True     StorageIsHealthy   5m30s   writes take 3 ms (not yet on the Node)

        node      worker-1
        identity  the kubelet's: system:node:worker-1
        API       retrying, last success 2m30s ago, 4 failures since, this machine's clock is 2400 s behind the API server's: 10.0.0.1:6443: connection refused
        helper    ok
        bus       unavailable: /run/dbus/system_bus_socket: not there
        kubelet   exited for 5m30s, kubelet.service, http://127.0.0.1:10248/healthz
        daemon    version 1.2.3, running for 24h, 6144 KiB locked
        "#);
    }

    #[test]
    fn a_hint_and_news_are_told_from_what_is_well() {
        let mut file = file();
        file.conditions[1].severity = "warning".to_owned();
        file.conditions[1].reason = "StorageNearlyFull".to_owned();
        let mut happened = |name: &str, note: &str, at: Timestamp, warning| {
            file.news.push(News {
                name: name.to_owned(),
                note: note.to_owned(),
                warning,
                at,
            });
        };
        let (first, second) = (at("2026-11-21T08:00:00Z"), at("2026-11-21T08:59:00Z"));
        happened("LastBootEnded", "cleanly", first, false);
        happened("ProcessOOMKilled", "x\x1b[2J (pid 7)", second, true);
        file.metrics_socket = Some("/run/nodevigil/metrics.sock".into());
        let text = table(&file, at("2026-11-21T09:00:30Z"), false);
        let shown: Vec<_> = text.lines().filter(|line| !line.contains(": ")).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        CONDITION            STATUS       REASON              SINCE   MESSAGE
        KubeletHealthy       False        KubeletCrashed      5m30s   killed by signal 9 [2J after 3 min
        NodeStorageHealthy   True, hint   StorageNearlyFull   5m30s   writes take 3 ms (not yet on the Node)

        ProcessOOMKilled   90s ago   x [2J (pid 7)
        LastBootEnded      60m ago   cleanly

        node      worker-1
        helper    ok
        kubelet   exited for 5m30s, kubelet.service, http://127.0.0.1:10248/healthz
        daemon    version 1.2.3, running for 24h, 6144 KiB locked
        metrics   /run/nodevigil/metrics.sock
        ");
        let text = table(&file, at("2026-11-21T09:00:30Z"), true);
        assert!(text.contains("\x1b[33mTrue, hint\x1b[0m"));
        assert!(text.contains("\x1b[33mProcessOOMKilled\x1b[0m"));
    }

    #[test]
    fn a_daemon_that_has_just_started() {
        let file = StatusFile {
            agent_version: "1.2.3".to_owned(),
            log_lines_dropped: 3,
            ..StatusFile::new(at("2026-11-21T09:00:00Z"))
        };
        insta::assert_snapshot!(table(&file, at("2026-11-21T09:00:00Z"), false), @r#"
        no condition yet: no check has come to a result

        node      unknown
        identity  unknown
        API       unknown
        helper    unknown
        bus       unknown
        kubelet   unknown
        daemon    version 1.2.3
        log       3 lines were dropped
        "#);
    }

    #[test]
    fn a_stale_file_is_called_so() {
        let file = file();
        let text = table(&file, at("2026-11-21T09:10:00Z"), true);
        let first = text.lines().next();
        let wanted = "\x1b[33mthe daemon has not written for 10m: is it running?\x1b[0m";
        assert_eq!(first, Some(wanted));
        assert!(text.contains("\x1b[31mFalse\x1b[0m"));
    }

    #[test]
    fn the_exit_code_says_how_things_are() {
        let now = at("2026-11-21T09:00:00Z");
        let mut file = file();
        assert_eq!(exit_code(&file, now), EXIT_BAD);
        file.conditions[0].status = ConditionStatus::Unknown;
        assert_eq!(exit_code(&file, now), EXIT_GOOD);
        file.conditions[0].status = ConditionStatus::True;
        assert_eq!(exit_code(&file, now), EXIT_GOOD);
        assert_eq!(exit_code(&file, at("2026-11-21T09:02:30Z")), EXIT_GOOD);
        assert_eq!(
            exit_code(&file, at("2026-11-21T09:02:31Z")),
            EXIT_CANNOT_TELL
        );
        assert_eq!(
            exit_code(&file, at("2026-11-21T08:00:00Z")),
            EXIT_CANNOT_TELL
        );
    }

    #[test]
    fn json_is_the_file_and_stale() {
        let json = serde_json::from_str(r#"{"version": 1, "later": [1]}"#).unwrap();
        let text = as_json(json, true).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let wanted = serde_json::json!({"version": 1, "later": [1], "stale": true});
        assert_eq!(read, wanted);
    }

    #[test]
    fn ages_as_kubectl_says_them() {
        let age = |seconds| {
            age(
                Timestamp::UNIX_EPOCH,
                Timestamp::from_second(seconds).unwrap(),
            )
        };
        assert_eq!(
            [0, 119, 120, 599, 600, 10_800, 28_800, 172_800, 864_000].map(age),
            [
                "0s", "119s", "2m0s", "9m59s", "10m", "3h0m", "8h", "2d0h", "10d"
            ]
        );
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        print(&mut Closed, "x").unwrap();
    }
}
