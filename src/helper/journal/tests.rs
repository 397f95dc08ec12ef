//! Little hosts with a journal; what is told of it.

use super::{
    file::tests::{FORMS, Made, journal},
    *,
};
use crate::helper::testing::{host, write};

const RUN: &str = "0123456789abcdef0123456789abcdef";
const INVOCATION: &str = "_SYSTEMD_INVOCATION_ID=0123456789abcdef0123456789abcdef";
const UNIT: &str = "_SYSTEMD_UNIT=kubelet.service";
const FATAL: &str = r#"MESSAGE=E1121 18:52:01.123456    1234 run.go:74] "command failed" err="unknown flag: --no-such-flag""#;

fn put(root: &Root, path: &str, bytes: &[u8]) {
    root.create_dir_all(PathBuf::from(path).parent().unwrap())
        .unwrap();
    root.write_atomically(path, bytes).unwrap();
}

fn told(path: &str, entries: &[Made<'_>]) -> LastWords {
    let mut answers = FORMS.map(|form| {
        let (_folder, root) = host();
        write(&root, "/etc/machine-id", "m\n");
        put(&root, path, &journal(form, entries));
        answer(&root, Some(RUN), false).unwrap()
    });
    answers.sort_by_key(|words| format!("{words:?}"));
    assert_eq!(answers[0], answers[2], "every form tells the same");
    answers[0].clone()
}

const FILES: [&str; 3] = [
    "/var/log/journal/m/system.journal",
    "/run/log/journal/m/system.journal",
    "/var/log/journal/m/system@a-1-2.journal",
];

#[test]
fn the_last_error_of_the_run_is_told_wherever_the_journal_lies() {
    for path in FILES {
        let words = told(
            path,
            &[
                (
                    1,
                    &[INVOCATION, UNIT, "MESSAGE=E1121 18:52:01.1 1 a.go:1] older"],
                ),
                (2, &[INVOCATION, UNIT, FATAL]),
                (3, &[INVOCATION, UNIT, "MESSAGE=goroutine 1 [running]:"]),
                (
                    4,
                    &[
                        "_SYSTEMD_INVOCATION_ID=another",
                        UNIT,
                        "MESSAGE=panic: not ours",
                    ],
                ),
            ],
        );
        assert_eq!(
            words.line.as_deref(),
            Some(r#"run.go:74] "command failed" err="unknown flag: --no-such-flag""#)
        );
        assert!(words.is_error && !words.compressed);
    }
}

#[test]
fn without_an_error_it_is_the_last_line_and_old_errors_are_no_last_words() {
    let late = LAST_US + 10;
    let words = told(
        FILES[0],
        &[
            (1, &[INVOCATION, UNIT, FATAL]),
            (
                late,
                &[INVOCATION, UNIT, "MESSAGE=I1121 18:53:01.1 1 a.go:1] fine"],
            ),
            (late, &[INVOCATION, UNIT, "MESSAGE="]),
        ],
    );
    assert_eq!(
        (words.line.as_deref(), words.is_error),
        (Some("a.go:1] fine"), false)
    );
    // A long line is compressed: that it is there is told.
    let words = told(
        FILES[0],
        &[
            (1, &[INVOCATION, UNIT, "MESSAGE=x"]),
            (2, &[INVOCATION, UNIT, "~"]),
        ],
    );
    assert!(words.compressed && words.line.is_none());
}

#[test]
fn only_a_kubelets_lines_are_told() {
    for (owner, is_told) in [
        ("_SYSTEMD_UNIT=kubelet.service", true),
        ("_SYSTEMD_UNIT=snap.microk8s.daemon-kubelite.service", true),
        ("_COMM=k3s-server", true),
        ("SYSLOG_IDENTIFIER=k0s", true),
        ("_SYSTEMD_UNIT=sshd.service", false),
    ] {
        let words = told(FILES[0], &[(1, &[INVOCATION, owner, FATAL])]);
        assert_eq!(words.line.is_some(), is_told, "{owner}");
    }
    let others = told(
        FILES[0],
        &[(
            1,
            &[
                INVOCATION,
                "_COMM=k0s",
                "MESSAGE=time=\"x\" level=error component=etcd msg=no",
            ],
        )],
    );
    assert_eq!(others, LastWords::default());
}

#[test]
fn secrets_stay() {
    let secret =
        "MESSAGE=E1121 18:52:01.1 1 a.go:1] \"x\" token=abcdef Authorization: Bearer s3cret";
    let words = told(FILES[0], &[(1, &[INVOCATION, UNIT, secret])])
        .line
        .unwrap();
    assert!(
        !words.contains("s3cret") && !words.contains("abcdef"),
        "{words}"
    );
}

#[test]
fn rke2s_log_is_read_from_its_end() {
    let (_folder, root) = host();
    assert_eq!(
        answer(&root, None, true).unwrap_err().code,
        Code::Unreadable
    );
    let old = "E1121 18:00:00.1 1 a.go:1] old\n".repeat(10_000);
    let log = format!("{old}{}\nI1121 18:52:02.1 1 a.go:1] bye\n", &FATAL[8..]);
    write(&root, RKE2_LOG, &log);
    let words = answer(&root, None, true).unwrap();
    assert!(words.line.unwrap().contains("unknown flag"));
}

#[test]
fn what_is_asked_must_be_a_run() {
    let (_folder, root) = host();
    for id in [None, Some("x"), Some("0123456789abcdef0123456789abcdeg")] {
        assert_eq!(answer(&root, id, false).unwrap_err().code, Code::BadRequest);
    }
    assert_eq!(
        answer(&root, Some(RUN), false).unwrap(),
        LastWords::default()
    );
    write(&root, "/etc/machine-id", "m\n");
    write(&root, FILES[0], "no journal");
    assert_eq!(
        answer(&root, Some(RUN), false).unwrap_err().code,
        Code::Unreadable
    );
}
