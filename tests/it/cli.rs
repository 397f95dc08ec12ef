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
    for word in [
        "run", "helper", "bundle", "check", "explain", "status", "pause", "resume", "cleanup",
        "replay", "observes",
    ] {
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

#[test]
fn the_runner_of_exec_plugins_cannot_be_told_what_to_run() {
    let (code, _, stderr) = nodevigil(&["plugin"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("nodevigil-plugin.socket"), "{stderr}");
    for word in ["/bin/sh", "--kubeconfig=/tmp/mine", "--socket=/tmp/s"] {
        assert_eq!(nodevigil(&["plugin", word]).0, 2, "{word}");
    }
    assert!(!nodevigil(&["--help"]).1.contains("plugin"));
}

#[test]
fn a_pause_is_written_shown_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let dir = dir.to_str().unwrap();
    let (code, stdout, stderr) =
        nodevigil(&["pause", "--for", "30m", "--reason", "swap", "--dir", dir]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("paused until 2") && stdout.contains("the daemon does not run"),
        "{stdout}"
    );
    let file = folder.path().join("run/pause.json");
    assert!(fs::read_to_string(&file).unwrap().contains("swap"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644, "whatever the umask says");
    fs::write(
        folder.path().join("run/status.json"),
        r#"{"version": 1, "written_at": "2026-11-21T09:00:00Z", "quiet": [
            {"kind": "stand-down", "by": "paused by nodevigil pause (swap) until 2026-11-21T09:30:00Z"},
            {"kind": "stand-down", "by": "the Node has MaintenanceInProgress=True"},
            {"kind": "hold", "by": "dpkg is changing packages"}]}"#,
    )
    .unwrap();
    for (said, there) in [("resumed", true), ("not paused", false)] {
        assert_eq!(file.exists(), there);
        let (code, stdout, stderr) = nodevigil(&["resume", "--dir", dir]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains(said), "{stdout}");
        let still = "still standing down: the Node has MaintenanceInProgress=True\n";
        assert!(
            stdout.ends_with(still) && stdout.matches("still").count() == 1,
            "{stdout}"
        );
    }
    for (length, words) in [
        ("8d", "7d at most"),
        ("soon", "1h30m"),
        ("0s", "some length"),
    ] {
        let (code, _, stderr) = nodevigil(&["pause", "--for", length, "--dir", dir]);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn a_pause_is_no_longer_than_the_configuration_allows() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let config = folder.path().join("config.toml");
    let path = config.to_str().unwrap();
    let pause = |length| nodevigil(&["pause", "--for", length, "--dir", dir, "--config", path]);
    for (text, too_long, allowed, words) in [
        (
            "[suppression]\nmax_pause_secs = 3600\n",
            "61m",
            "1h",
            "1h at most",
        ),
        // A day is the default, and what counts while the configuration is broken.
        ("[kubelet]\n", "25h", "24h", "max_pause_secs = 86400"),
        (
            "[nonsense]\n",
            "25h",
            "24h",
            "the default of max_pause_secs counts",
        ),
    ] {
        fs::write(&config, text).unwrap();
        let file = folder.path().join("pause.json");
        let (code, _, stderr) = pause(too_long);
        assert!(code == 1 && stderr.contains(words), "{code}: {stderr}");
        assert!(!file.exists(), "{stderr}");
        let (code, stdout, stderr) = pause(allowed);
        assert!(
            code == 0 && stdout.contains("paused until"),
            "{stdout}{stderr}"
        );
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn who_may_not_pause_is_told_what_to_do() {
    // Where not even root can make a folder.
    let (code, _, stderr) = nodevigil(&["pause", "--for", "1m", "--dir", "/proc/1/nodevigil"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("/proc/1/nodevigil"), "{stderr}");
}

#[test]
fn cleanup_against_nobody_fails_within_its_time_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    // TEST-NET-1: packets to it are dropped, or there is no route.
    fs::write(
        &kubeconfig,
        r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
        "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
        "clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1:6443"}}],
        "users":[{"name":"u","user":{"token":"t"}}]}"#,
    )
    .unwrap();
    let start = std::time::Instant::now();
    let (code, _, stderr) = nodevigil(&[
        "cleanup",
        "--node",
        "n1",
        "--timeout",
        "1s",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--dir",
        dir.path().to_str().unwrap(),
    ]);
    assert_eq!(code, 1, "{stderr}");
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
    for words in [
        "n1 is not clean",
        "kubectl patch node n1 --subresource=status",
        "KubeletHealthy",
    ] {
        assert!(stderr.contains(words), "{words} in {stderr}");
    }
}
