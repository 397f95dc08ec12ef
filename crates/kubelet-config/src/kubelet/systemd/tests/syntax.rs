//! Facts 12 to 17: lines, sections, continuation, encodings, lists.

use super::*;

#[test]
fn fact_12_sections_and_keys() {
    let text = "Environment=O=--outside\n[service]\nEnvironment=W=--wrong\n[X-Mine]\nA=b\n[Unit]\nEnvironment=U=--unit\n[Service]\n  Environment=A=1\nenvironment=L=--low\nX-Key=1\nno equals\n=novalue\n[Service]\nExecStart=/bin/x $A\n";
    let unit = load(&MemoryTree::new().file(format!("{USR}/k.service"), text));
    assert_eq!(argv(&unit), ["/bin/x", "1"]);
    assert!(has(&unit, "--outside", |kind| *kind == EventKind::OutsideSection));
    assert!(has(&unit, "[service]", |kind| *kind == EventKind::UnknownSection));
    assert!(has(&unit, "--wrong", |kind| *kind == EventKind::InUnknownSection));
    assert!(has(&unit, "--unit", |kind| matches!(kind, EventKind::UnknownKey { section, .. } if section == "Unit")));
    assert!(has(&unit, "--low", |kind| matches!(kind, EventKind::UnknownKey { key, .. } if key == "environment")));
    assert!(has(&unit, "no equals", |kind| *kind == EventKind::MalformedLine));
    assert!(has(&unit, "=novalue", |kind| *kind == EventKind::MalformedLine));
    assert!(!unit.events.iter().any(|event| event.text.contains("X-Key")));
}

#[test]
fn fact_12_a_malformed_header_ends_the_file() {
    let tree = MemoryTree::new().file(format!("{USR}/k.service"), "[Service]\nExecStart=/bin/x\n[Service\n");
    assert!(matches!(load(&tree).load, LoadState::Error { at, .. } if at.line == 3));
    let tree = service("ExecStart=/bin/x $A $B")
        .file(format!("{ETC}/k.service.d/a.conf"), "[Service]\nEnvironment=A=1\n[Service\nEnvironment=B=--lost\n");
    let unit = load(&tree);
    assert_eq!(argv(&unit), ["/bin/x", "1"]);
    assert!(has(&unit, "B=--lost", |kind| matches!(kind, EventKind::RestOfFileLost { .. })));
}

#[test]
fn fact_12_nul_and_a_lone_cr_end_a_line() {
    assert_eq!(words("ExecStart=/bin/x $A $B\nEnvironment=A=1\0Environment=B=2"), ["1", "2"]);
    assert_eq!(words("ExecStart=/bin/x $A $B\nEnvironment=A=1\rEnvironment=B=2"), ["1", "2"]);
}

#[test]
fn fact_13_there_is_no_comment_behind_a_value() {
    assert_eq!(words("ExecStart=/bin/x --v=2 # verbose\n ; comment\n # comment"), ["--v=2", "#", "verbose"]);
}

#[test]
fn fact_14_continuation() {
    assert_eq!(words("ExecStart=/bin/x a \\\n# comment\n  b \\\n; c\n  d"), ["a", "b", "d"]);
    assert_eq!(words("ExecStart=/bin/x a\\\nb"), ["a", "b"]);
    assert_eq!(words("ExecStart=/bin/x a\\\\\nEnvironment=A=1"), ["a\\"]);
    let unit = load(&service("ExecStart=/bin/x a \\ \n  --lost"));
    assert_eq!(argv(&unit), ["/bin/x", "a", "\\"]);
    assert!(has(&unit, "a \\", |kind| *kind == EventKind::BackslashBlank));
    assert!(has(&unit, "--lost", |kind| *kind == EventKind::MalformedLine));
    let unit = load(&service("ExecStart=/bin/x a \\\n\n  --lost"));
    assert_eq!(argv(&unit), ["/bin/x", "a"]);
    assert!(has(&unit, "", |kind| *kind == EventKind::ContinuationEnded));
}

#[test]
fn fact_15_encodings() {
    let tree =
        MemoryTree::new().file(format!("{USR}/k.service"), "\u{FEFF}[Service]\r\nExecStart=/bin/x a \\\r\n b\r\n");
    let unit = load(&tree);
    assert_eq!(argv(&unit), ["/bin/x", "a", "b"]);
    let bad =
        b"[Service]\nEnvironment=A=1\n# \xFF\nEnvironment=B=\xFF\nEnvironment=C=--lost\nExecStart=/bin/x $A $B $C\n";
    let tree = MemoryTree::new().file(format!("{USR}/k.service"), &bad[..]);
    assert!(matches!(load(&tree).load, LoadState::Error { at, .. } if at.line == 4));
    let tree = service("ExecStart=/bin/x $A $B $C").file(format!("{ETC}/k.service.d/a.conf"), &bad[..]);
    let unit = load(&tree);
    assert_eq!(argv(&unit), ["/bin/x", "1"]);
    assert!(has(&unit, "--lost", |kind| matches!(kind, EventKind::RestOfFileLost { .. })));
}

#[test]
fn fact_16_empty_assignments_reset_their_own_list() {
    let tree = service("ExecStart=/bin/x $A $B $C\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\nEnvironmentFile=/e\nEnvironment=\nEnvironment=D=3\n")
        .file("/e", "C=file");
    let unit = load(&tree);
    assert_eq!(argv(&unit), ["/bin/x", "file"]);
    let lost = |by: u32| move |kind: &EventKind| matches!(kind, EventKind::Reset { key, by: at } if key == "Environment" && at.line == by);
    assert!(has(&unit, "A=1", lost(4)) && has(&unit, "B=2", lost(7)));
    let unit = load(&service("ExecStart=/bin/x --old\nExecStart=\nExecStart=/bin/y"));
    assert_eq!(argv(&unit), ["/bin/y"]);
    assert_eq!(unit.replaced_execs[0].words[1].text, "--old");
}

#[test]
fn fact_17_two_commands_or_none() {
    for (lines, line) in
        [("ExecStart=/bin/x\nExecStart=/bin/y", 3), ("ExecStart=/bin/x\nExecStart=", 3), ("Type=simple", 0)]
    {
        assert!(matches!(load(&service(lines)).load, LoadState::BadSetting { at, .. } if at.line == line), "{lines}");
    }
    let unit = load(&service("Type=oneshot\nExecStart=/bin/x\nExecStart=/bin/y"));
    assert_eq!((unit.load.clone(), argv(&unit)), (LoadState::Loaded, vec!["/bin/x"]));
    assert!(matches!(
        load(&service("Type=oneshot\nRestart=always\nExecStart=/bin/x")).load,
        LoadState::BadSetting { .. }
    ));
    assert_eq!(load(&service("Type=bogus\nExecStart=/bin/x")).load, LoadState::Loaded);
    assert!(matches!(load(&service("WorkingDirectory=rel\nExecStart=/bin/x")).load, LoadState::BadSetting { .. }));
}

#[test]
fn fact_17_a_bad_command_in_the_fragment_spoils_the_unit() {
    for bad in ["/bin/x %5", "/bin/x 'a", "bin/x", "/bin/", "-", "@/bin/x", "\"/bin/a\\x22\""] {
        let tree = service(&format!("ExecStart={bad}"))
            .file(format!("{ETC}/k.service.d/a.conf"), "[Service]\nExecStart=\nExecStart=/bin/y\n");
        let unit = load(&tree);
        if bad == "-" {
            assert_eq!(unit.load, LoadState::Loaded, "{bad}");
        } else {
            assert!(matches!(unit.load, LoadState::BadSetting { .. }), "{bad}");
            assert!(unit.dropins.is_empty(), "{bad}");
        }
    }
    // Measured: an unclosed quote in the first word only costs the line.
    assert_eq!(words("ExecStart=\"/bin/a\nExecStart=/bin/x a"), ["a"]);
    assert_eq!(words("ExecStart=-/bin/a %5\nExecStart=/bin/x a"), ["a"]);
}

#[test]
fn fact_17_a_bad_command_in_a_drop_in_ends_it() {
    let path = format!("{ETC}/k.service.d/a.conf");
    let tree = service("ExecStart=/bin/x $A $B");
    let unit =
        load(&tree.clone().file(&path, "[Service]\nEnvironment=A=1\nExecStart=/bin/y %5\nEnvironment=B=--lost\n"));
    assert_eq!(argv(&unit), ["/bin/x", "1"]);
    assert!(has(&unit, "B=--lost", |kind| matches!(kind, EventKind::RestOfFileLost { .. })));
    let unit = load(&tree.file(&path, "[Service]\nExecStart=\nExecStart=/bin/y %5\n"));
    assert!(matches!(unit.load, LoadState::BadSetting { .. }));
}

/// Measured: systemd takes U+FFFE for invalid UTF-8, and half a surrogate pair by `\u`, which then spoils its word.
#[test]
fn noncharacters_and_surrogates() {
    let tree = service("ExecStart=/bin/x\nEnvironment=A=\u{FFFE}");
    assert!(matches!(load(&tree).load, LoadState::Error { .. }));
    let unit = load(&service("Environment=A=1 B=\\ud800 C=2\nExecStart=/bin/x $A $B $C"));
    assert_eq!(argv(&unit), ["/bin/x", "1", "2"]);
}
