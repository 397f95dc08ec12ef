//! Trees that are made to hurt: nothing panics, hangs or grows without bound.

use proptest::prelude::*;

use super::*;

#[test]
fn a_megabyte_of_anything_is_resolved() {
    for unit in ["$A ", "${A} ", "a\\\n", "'", "%n", "; ", "\"\" ", "\\x41", "A=1 "] {
        for key in ["ExecStart=/bin/x ", "Environment=", "EnvironmentFile=/", "Junk=", ""] {
            let lines = format!("Environment=\"A=1 2 3\"\n{key}{}", unit.repeat(100_000 / unit.len()));
            let unit = load(&service(&lines));
            assert!(unit.argv.len() <= 300_000);
        }
    }
}

#[test]
fn a_large_value_that_is_used_often_is_cut() {
    let value = "x ".repeat(500_000);
    let tree = service(&format!("EnvironmentFile=/e\nExecStart=/bin/x {}", "$A ${A} ".repeat(1000)))
        .file("/e", format!("A={value}\n"));
    let unit = load(&tree);
    let bytes: usize = unit.argv.iter().map(|word| word.text.len() + 1).sum();
    assert!(bytes < 8 << 20, "{bytes}");
}

#[test]
fn things_that_are_no_files_are_not_opened() {
    let tree = service("ExecStart=/bin/x")
        .other(format!("{ETC}/k.service.d/fifo.conf"))
        .link(format!("{ETC}/k.service.d/loop.conf"), "loop.conf");
    let unit = load(&tree);
    assert_eq!((unit.load.clone(), unit.dropins.len()), (LoadState::Loaded, 2));
    assert_eq!(unit.events.iter().filter(|event| matches!(event.kind, EventKind::FileUnreadable { .. })).count(), 2);
    let tree = MemoryTree::new().other(format!("{ETC}/k.service"));
    assert!(matches!(load(&tree).load, LoadState::Error { .. }));
}

proptest! {
    #[test]
    fn no_bytes_panic(unit in proptest::collection::vec(any::<u8>(), 0..300), env in "[A=\"'\\\\\n\r $#;é]{0,80}") {
        let mut text = b"[Service]\nEnvironmentFile=/e\nExecStart=/bin/x $A ${A} ".to_vec();
        text.extend(&unit);
        let tree = MemoryTree::new()
            .file(format!("{USR}/k.service"), "[Service]\nExecStart=/bin/x\n")
            .file(format!("{ETC}/k.service.d/a.conf"), text)
            .file("/e", env);
        let unit = load(&tree);
        for word in &unit.argv {
            prop_assert!(word.declared.line > 0);
        }
    }

    #[test]
    fn lines_made_of_syntax_do_not_panic(lines in "([\\[\\]=$%{}:;@+!|\"'\\\\ \t\n\rAx/-]|ExecStart=|Environment=|%n|\\$A|\\\\x2d|é){0,60}") {
        load(&service(&lines));
    }
}
