//! The options as they are typed.

use clap::{Args, Command, FromArgMatches};

use super::*;

fn parse(arguments: &[&str]) -> Result<Check, String> {
    let command = Check::augment_args(Command::new("check"));
    command
        .try_get_matches_from([&["check"], arguments].concat())
        .map(|matches| Check::from_arg_matches(&matches).unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn options_have_their_defaults() {
    let check = parse(&[]).unwrap();
    assert_eq!(check.root, PathBuf::from("/"));
    assert_eq!((check.format, check.phase), (Format::Text, PhaseArg::After));
    assert_eq!(check.severity, SeverityArg::Info);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for arguments in [
        ["--kubelet-version", "2.1"],
        ["--intent", "cloud-provider=hetzner"],
        ["--select", "NOPE"],
        ["--severity", "loud"],
        ["--phase", "during"],
        ["--format", "xml"],
    ] {
        let error = parse(&arguments).unwrap_err();
        assert!(error.contains(arguments[1]), "{error}");
    }
}
