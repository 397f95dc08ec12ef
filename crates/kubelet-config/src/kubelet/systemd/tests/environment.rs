//! Facts 18 to 29: the environment and its files.

use super::*;

fn value(unit: &Unit, name: &str) -> Option<String> {
    unit.variables.get(name).map(|variable| variable.effective.value.clone())
}

#[test]
fn fact_18_who_wins() {
    let tree = service("ExecStart=/bin/x\nEnvironment=A=1 B=1 C=1 D=1 M=unit\nEnvironment=B=2\nEnvironmentFile=/e\nEnvironmentFile=/f\nEnvironment=C=late\nUnsetEnvironment=D E=1 F=other")
        .file("/e", "C=e\nE=1\nF=1\n")
        .file("/f", "C=f\n");
    let manager = Manager {
        environment: BTreeMap::from([("M".to_owned(), "manager".to_owned()), ("N".to_owned(), "n".to_owned())]),
        ..Manager::default()
    };
    let unit = resolve_unit(&tree, "k.service", &manager);
    for (name, expected) in [
        ("A", Some("1")),
        ("B", Some("2")),
        ("C", Some("f")),
        ("D", None),
        ("E", None),
        ("F", Some("1")),
        ("M", Some("unit")),
        ("N", Some("n")),
    ] {
        assert_eq!(value(&unit, name).as_deref(), expected, "{name}");
    }
    let overridden: Vec<_> =
        unit.variables["C"].overridden.iter().map(|overridden| overridden.value.as_str()).collect();
    assert_eq!(overridden, ["1", "late", "e"]);
    assert!(has(&unit, "1", |kind| matches!(kind, EventKind::Unset { name, .. } if name == "D")));
}

#[test]
fn fact_20_files_that_are_skipped_whole() {
    let tree = service("ExecStart=/bin/x\nEnvironmentFile=-/missing\nEnvironmentFile=/directory\nEnvironmentFile=-/nul\nEnvironmentFile=-/latin\nEnvironmentFile=-/fifo\nEnvironmentFile=-/null\nEnvironmentFile=-/comment")
        .directory("/directory")
        .file("/nul", "A=1\n\0")
        .file("/latin", &b"A=1\nB=\xFF\n"[..])
        .other("/fifo")
        .link("/null", "/dev/null")
        .file("/comment", &b"# \xFF\nA=2\n"[..]);
    let unit = load(&tree);
    let states: Vec<_> = unit
        .env_files
        .iter()
        .map(|file| match file.state {
            EnvFileState::Read => "read",
            EnvFileState::Missing => "missing",
            EnvFileState::Skipped { .. } => "skipped",
        })
        .collect();
    assert_eq!(states, ["missing", "skipped", "skipped", "skipped", "skipped", "read", "read"]);
    assert!(unit.env_files[0].optional && !unit.env_files[1].optional);
    assert_eq!(value(&unit, "A").as_deref(), Some("2"));
}

#[test]
fn fact_21_paths_and_globs() {
    let tree = service("ExecStart=/bin/x\nEnvironmentFile=rel\nEnvironmentFile=\"/a\"\nEnvironmentFile=- /a\nEnvironmentFile=/a/../b\nEnvironmentFile=//e//./%N.env/\nEnvironmentFile=-/g/*.env\nEnvironmentFile=/none/*")
        .file("/e/k.env", "A=1\n")
        .file("/g/2.env", "B=2\n")
        .file("/g/1.env", "B=1\n");
    let unit = load(&tree);
    let paths: Vec<_> = unit.env_files.iter().map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/e/k.env", "/g/1.env", "/g/2.env", "/none/*"]);
    assert_eq!(unit.env_files[3].state, EnvFileState::Missing);
    assert_eq!((value(&unit, "A").as_deref(), value(&unit, "B").as_deref()), (Some("1"), Some("2")));
    let bad = unit.events.iter().filter(|event| matches!(event.kind, EventKind::BadEnvironmentFile { .. }));
    assert_eq!(bad.count(), 4);
}

#[test]
fn fact_22_the_words_of_environment() {
    let unit = load(&service(
        "ExecStart=/bin/x\nEnvironment=A=--x=1 --y=2\nEnvironment=\"B=x y\" 'C=x y' D=\"x y\"\nEnvironment=E = 1\nEnvironment=J={\"a\":1}\nEnvironment=P=%%n Q=%5 R=$A\nEnvironment=S=1 T=\\d U=2\nEnvironment=V=1 'W=2",
    ));
    for (name, expected) in [
        ("A", Some("--x=1")),
        ("B", Some("x y")),
        ("C", Some("x y")),
        ("D", Some("x y")),
        ("E", None),
        ("J", Some("{a:1}")),
        ("P", Some("%n")),
        ("Q", None),
        ("R", Some("$A")),
        ("S", Some("1")),
        ("T", None),
        ("U", None),
        ("V", Some("1")),
        ("W", None),
    ] {
        assert_eq!(value(&unit, name).as_deref(), expected, "{name}");
    }
    let first = Some(("A".to_owned(), "--x=1".to_owned()));
    assert!(has(&unit, "--y=2", |kind| *kind == EventKind::InvalidAssignment { first: first.clone() }));
    assert!(has(&unit, "Q=%5", |kind| *kind == EventKind::BadSpecifier { letter: '5' }));
    assert!(has(&unit, "T=\\d U=2", |kind| *kind == EventKind::BadQuoting));
    assert!(has(&unit, "'W=2", |kind| *kind == EventKind::BadQuoting));
    let lost = unit.events.iter().find(|event| event.text == "--y=2").unwrap();
    assert_eq!((lost.at.line, lost.at.column, lost.at.width), (3, 21, 5));
}

#[test]
fn pass_environment_takes_from_the_manager() {
    let manager = Manager { environment: BTreeMap::from([("P".to_owned(), "1".to_owned())]), ..Manager::default() };
    let tree = service("ExecStart=/bin/x\nPassEnvironment=P Q 1bad");
    let unit = resolve_unit(&tree, "k.service", &manager);
    assert_eq!(unit.variables["P"].effective.source, Source::Passed);
    assert!(!unit.variables.contains_key("Q"));
}

fn parsed(text: &str, version: u32) -> Vec<(String, String)> {
    env_file::parse(&Location::file("/e"), text.as_bytes(), version)
        .assignments
        .into_iter()
        .map(|assignment| (assignment.name, assignment.value))
        .collect()
}

/// Each text with the value of `A` that comes of it.
#[test]
fn facts_23_to_26_values() {
    for (text, expected) in [
        ("A = 1 \n", "1"),
        ("A=a\"b c\"\n", "a\"b c\""),
        ("A=a\\ b\\\nc\n", "a bc"),
        ("A=\"a\\\"\\\\\\$\\`\\n\\\nb\nc\"\n", "a\"\\$`\\nb\nc"),
        ("A='a\\n$\"b'\n", "a\\n$\"b"),
        ("A=\"x\" # note\n", "x# note"),
        ("A=\"a\" \"b\"\n", "ab"),
        ("A='3' x\n", "3x"),
        ("A=\"a\"tail \"b\"\n", "atail \"b\""),
        ("A=\"x\nB=1\n", "x\nB=1\n"),
        ("A=1\r\nB=2\r\n", "1"),
        ("A=\"--x \\\r\n--y\"\r\n", "--x \\\r\n--y"),
        ("A=--x \\\r\n--y\r\n", "--x "),
        ("A=\n", ""),
        ("A=x\\", "x"),
    ] {
        let found = parsed(text, 252).into_iter().find(|(name, _)| name == "A");
        assert_eq!(found.unwrap().1, expected, "{text:?}");
    }
}

#[test]
fn fact_26_what_looks_wrong_is_told() {
    let kinds = |text: &str| -> Vec<EventKind> {
        env_file::parse(&Location::file("/e"), text.as_bytes(), 252)
            .events
            .into_iter()
            .map(|event| event.kind)
            .collect()
    };
    assert_eq!(kinds("A=\"x\" # note\n"), [EventKind::EnvTextAfterQuote]);
    assert_eq!(kinds("A=\"x\nB=1\n"), [EventKind::EnvQuoteNotClosed { lines: 2 }]);
    assert_eq!(kinds("no assignment\n"), [EventKind::EnvLineWithoutAssignment]);
    assert_eq!(kinds("A=\"a\" 'b'\n"), [EventKind::EnvTextAfterQuote]);
}

#[test]
fn fact_27_comments() {
    let text = "# a \\\nB=1\n  ; c\nA=1#2\n";
    assert_eq!(parsed(text, 252), [("A".to_owned(), "1#2".to_owned())]);
    assert_eq!(parsed(text, 254).len(), 2);
    let events = env_file::parse(&Location::file("/e"), text.as_bytes(), 252).events;
    assert_eq!(
        (&events[0].kind, events[0].text.as_str(), events[0].at.line),
        (&EventKind::EnvCommentContinued, "B=1", 2)
    );
}

#[test]
fn fact_28_names_that_are_none() {
    let text = "\u{FEFF}A=1\nexport B=1\n1C=1\nD-E=1\n\"F=1\"\nG H=1\n=1=2\nZ=1\nZ=%n$X\n";
    let file = env_file::parse(&Location::file("/e"), text.as_bytes(), 252);
    assert_eq!(file.assignments.len(), 2);
    assert_eq!(file.assignments[1].value, "%n$X");
    let reasons: Vec<(u32, &str)> = file
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::EnvLineIgnored { reason, .. } => Some((event.at.line, reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        reasons,
        [
            (1, "byte order mark"),
            (2, "export"),
            (3, "the name starts with a digit"),
            (4, "the name has a dash"),
            (5, "the name has a quote"),
            (6, "there is a space in the name"),
            (7, "the name is empty")
        ]
    );
}

#[test]
fn places_inside_a_value_of_several_lines() {
    let tree = service("ExecStart=/bin/x $A ${B}\nEnvironmentFile=/e")
        .file("/e", "# c\nA=\"--ä=1 \\\n  --b \\\"q \\\"\n--c\"\nB=x y\n");
    let unit = load(&tree);
    assert_eq!(argv(&unit), ["/bin/x", "--ä=1", "--b", "q ", "--c", "x y"]);
    let places: Vec<_> =
        unit.argv[1..].iter().map(|word| (word.at().line, word.at().column, word.at().width)).collect();
    assert_eq!(places, [(2, 4, 5), (3, 3, 3), (3, 8, 5), (4, 1, 3), (5, 3, 3)]);
    let declared = &unit.argv[1].declared;
    assert_eq!((declared.line, declared.column, declared.width), (2, 18, 2));
}

#[test]
fn user_and_directories_set_variables() {
    let unit = load(
        &service("User=u\nStateDirectory=a b\nExecStart=/bin/x ${HOME} $STATE_DIRECTORY ${PATH}")
            .file("/etc/passwd", "u:x:5:5::/home/u:/bin/zsh\n"),
    );
    assert_eq!(
        argv(&unit)[1..],
        ["/home/u", "/var/lib/a:/var/lib/b", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    );
    assert_eq!(words("ExecStart=/bin/x ${HOME}${USER}"), [""]);
}

#[test]
fn the_managers_own_environment_is_that_of_its_configuration() {
    let tree = service("Environment=B=unit\nExecStart=/bin/x $A $B")
        .file("/etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=gone\n")
        .file(
            "/usr/lib/systemd/system.conf.d/10.conf",
            "[Manager]\nDefaultEnvironment=\nDefaultEnvironment=\"A=--v=2 --x\" B=manager\n",
        );
    let words: Vec<String> = load(&tree).argv.iter().map(|word| word.text.clone()).collect();
    assert_eq!(words, ["/bin/x", "--v=2", "--x", "unit"]);
    let own = BTreeMap::from([("A".to_owned(), "running".to_owned())]);
    let running = Manager { environment: own, ..Manager::default() };
    assert_eq!(resolve_unit(&tree, "k.service", &running).argv[1].text, "running", "systemd has said it");
    // Read as a unit file is: a continued line, blanks around the sign, other sections.
    let text = "[Manager]\nDefaultEnvironment = A=1 \\\n# no\n B=x\n[Other]\nDefaultEnvironment=A=2\n";
    let unit = load(&service("ExecStart=/bin/x $A $B").file("/etc/systemd/system.conf", text));
    assert_eq!(argv(&unit)[1..], ["1", "x"]);
    // systemd keeps the words before an unclosed quote, and reads the next line.
    let text = "[Manager]\nDefaultEnvironment=A=1 'B=2 C=3\nDefaultEnvironment=D=4\n";
    let unit = load(&service("ExecStart=/bin/x $A $B $D").file("/etc/systemd/system.conf", text));
    assert_eq!(argv(&unit)[1..], ["1", "4"]);
    assert!(has(&unit, "'B=2 C=3", |kind| *kind == EventKind::BadQuoting));
}
