//! The command line as a user meets it: help, errors that name the noun, exit codes.

use std::{fs, process::Command};

/// Exit code, stdout, stderr.
fn nodevigil(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        .args(args)
        .env_remove("RUNTIME_DIRECTORY")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn help_names_every_subcommand() {
    let (code, stdout, _) = nodevigil(&["--help"]);
    assert_eq!(code, 0);
    for word in ["run", "helper", "check", "explain", "status", "observes"] {
        assert!(stdout.contains(word), "{word} in {stdout}");
    }
    assert_eq!(
        nodevigil(&["--version"]).1,
        format!("nodevigil {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_bad_configuration_is_named_by_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("10-bad.toml");
    let path = file.to_str().unwrap();
    for (text, line, words) in [
        (
            "[kubelet]\nhelthy_for_secs = 5\n",
            2,
            ["kubelet.helthy_for_secs", "healthy_for_secs"],
        ),
        (
            "\n[kubelet]\nhealthy_for_secs = -5\n",
            3,
            ["kubelet.healthy_for_secs", "-5"],
        ),
        (
            "[kubelet]\nhealthz_url = \"https://example.org\"\n",
            2,
            ["kubelet.healthz_url", "http"],
        ),
        ("[kublet]\n", 1, ["kublet", "kubelet"]),
        ("[kubelet\n", 1, ["kubelet", ""]),
    ] {
        fs::write(&file, text).unwrap();
        let (code, _, stderr) = nodevigil(&["run", "--config", path]);
        assert_eq!(code, 78, "{stderr}");
        assert!(stderr.contains(&format!("{path}:{line}: ")), "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
    let (code, _, stderr) = nodevigil(&["run", "--config", "/does/not/exist.toml"]);
    assert_eq!(code, 78);
    assert!(stderr.contains("/does/not/exist.toml"), "{stderr}");
}

#[test]
fn status_without_a_daemon_cannot_tell() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) = nodevigil(&["status", "--dir", dir.path().to_str().unwrap()]);
    assert_eq!(code, 2, "{stdout}{stderr}");
    assert!(stderr.contains(dir.path().to_str().unwrap()), "{stderr}");
}

#[test]
fn a_helper_without_a_socket_says_what_to_do() {
    let (code, _, stderr) = nodevigil(&["helper"]);
    assert_ne!(code, 0);
    assert!(stderr.contains("nodevigil-helper.socket"), "{stderr}");
}
