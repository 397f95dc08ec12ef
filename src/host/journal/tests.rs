//! The log on its way: queue, writer and sinks.

use std::sync::mpsc::{Receiver, channel};

use tracing::{Level, info, warn};

use super::{
    record::MAX_BYTES,
    writer::{Style, line, with_log_record},
    *,
};

fn counts() -> &'static Counts {
    Box::leak(Box::default())
}

/// A queue whose lines arrive in a channel.
fn collecting() -> (Queue, Receiver<Record>) {
    let (send, lines) = channel();
    let queue = Queue::start(counts(), || {
        move |record: &Record| drop(send.send(record.clone()))
    })
    .unwrap();
    (queue, lines)
}

fn logged(filter: &str, log: impl FnOnce()) -> Vec<Record> {
    let (queue, lines) = collecting();
    let subscriber = Registry::default()
        .with(parse_filter(filter).unwrap())
        .with(queue);
    tracing::subscriber::with_default(subscriber, log);
    lines.iter().collect()
}

fn record(message: &str, fields: &[(&'static str, &str)]) -> Record {
    Record {
        at: "2026-11-21T09:00:00.123Z".parse().unwrap(),
        level: Level::WARN,
        target: "nodevigil",
        message: message.to_owned(),
        fields: fields.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
    }
}

#[test]
fn fields_arrive_one_by_one() {
    let lines = logged("info", || {
        let error = io::Error::other("why");
        warn!(
            message_id = Kind::Started.id(),
            node = "n1",
            pid = 7,
            ok = true,
            path = ?Some(1),
            error = &error as &dyn std::error::Error,
            "started {}",
            "well"
        );
    });
    let [line] = lines.as_slice() else {
        panic!("one line: {lines:?}")
    };
    assert_eq!(line.message, "started well");
    assert_eq!(line.level, Level::WARN);
    let fields: Vec<_> = line.fields.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(
        fields,
        [
            ("message_id", Kind::Started.id()),
            ("node", "n1"),
            ("pid", "7"),
            ("ok", "true"),
            ("path", "Some(1)"),
            ("error", "why"),
        ]
    );
}

#[test]
fn a_level_is_for_our_own_lines() {
    let log = || {
        info!(target: "nodevigil::agent", "ours");
        info!(target: "kube_client", "theirs");
        warn!(target: "kube_client", "their warning");
    };
    let messages = |filter| -> Vec<_> {
        logged(filter, log)
            .into_iter()
            .map(|record| record.message)
            .collect()
    };
    assert_eq!(messages("info"), ["ours", "their warning"]);
    assert_eq!(messages("warn"), ["their warning"]);
    assert_eq!(messages("off"), Vec::<String>::new());
    assert_eq!(
        messages("error,kube_client=info"),
        ["theirs", "their warning"]
    );
    let refused = parse_filter("nodevigil=loud").unwrap_err().to_string();
    assert!(
        refused.starts_with("log level \"nodevigil=loud\": "),
        "{refused}"
    );
}

#[test]
fn a_line_is_bounded() {
    let long = "ä".repeat(MAX_BYTES);
    let lines = logged("info", || info!(long, after = "x", "short"));
    let size: usize = lines[0].fields.iter().map(|(_, v)| v.len()).sum();
    assert!(size < MAX_BYTES + 16 && lines[0].fields[0].1.ends_with('…'));
    assert_eq!(lines[0].message, "short", "the message comes first");
}

#[test]
fn a_blocked_writer_blocks_nobody_and_the_loss_is_said() {
    let (go, wait) = channel::<()>();
    let (send, lines) = channel();
    let counts = counts();
    let queue = Queue::start(counts, move || {
        move |record: &Record| {
            let _ = wait.recv();
            drop(send.send(record.clone()));
        }
    })
    .unwrap();
    for _ in 0..1000 {
        queue.push(record("x", &[]));
    }
    let dropped = counts.dropped.load(Ordering::Relaxed);
    assert!((1000 - 257..=1000 - 256).contains(&dropped), "{dropped}");
    drop(Guard { counts });
    assert_ne!(counts.pending.load(Ordering::Relaxed), 0, "it gave up");
    drop(go); // the journal answers again
    let kept = lines.iter().take(1000 - usize::try_from(dropped).unwrap());
    assert!(kept.into_iter().all(|line| line.message == "x"));
    let last = lines.recv().unwrap();
    assert_eq!(last.fields[0].1, Kind::LogDropped.id());
    assert_eq!(last.fields[1], ("lines", dropped.to_string()));
    drop(Guard { counts });
    assert_eq!(counts.pending.load(Ordering::Relaxed), 0);
}

#[test]
fn lines_for_people() {
    let plain = record(
        "kubelet is gone",
        &[
            ("message_id", "abc"),
            ("pid", "7"),
            ("why", "killed by 9"),
            ("empty", ""),
            ("quote", "a\"b"),
        ],
    );
    insta::assert_snapshot!(
        line(&plain, Style::Plain).trim_end(),
        @r#"2026-11-21T09:00:00Z WARN kubelet is gone pid=7 why="killed by 9" empty="" quote="a\"b""#
    );
    let evil = record("a\nb\x1b[2J", &[("x", "c\nd")]);
    insta::assert_snapshot!(
        line(&evil, Style::Prefix).trim_end(),
        @r#"<4>a\nb\u{1b}[2J x="c\nd""#
    );
    assert_eq!(
        line(&record("m", &[("k", "v")]), Style::Colour),
        "\x1b[2m2026-11-21T09:00:00Z\x1b[0m \x1b[33mWARN\x1b[0m m \x1b[2mk=\x1b[0mv\n"
    );
}

#[test]
fn the_journal_gets_key_values() {
    struct Pairs(Vec<(String, String)>);
    impl<'kvs> log::kv::VisitSource<'kvs> for Pairs {
        fn visit_pair(
            &mut self,
            key: log::kv::Key<'kvs>,
            value: log::kv::Value<'kvs>,
        ) -> Result<(), log::kv::Error> {
            self.0.push((key.to_string(), value.to_string()));
            Ok(())
        }
    }
    let record = record("m", &[("message_id", "abc"), ("node", "n1")]);
    with_log_record(&record, |record| {
        let mut pairs = Pairs(Vec::new());
        record.key_values().visit(&mut pairs).unwrap();
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(pairs.0, [pair("message_id", "abc"), pair("node", "n1")]);
        assert_eq!(record.args().to_string(), "m");
        assert_eq!(record.level(), log::Level::Warn);
    });
}
