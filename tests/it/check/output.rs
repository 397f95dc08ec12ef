//! What people see of `nodevigil check` and `nodevigil explain`.

use super::*;

#[test]
fn colour_is_for_terminals_and_whoever_asks() {
    let host = Host::new("broken-five-ways");
    assert!(!host.check(&[]).stdout.contains('\x1b'));
    assert!(host.check(&["--color=always"]).stdout.contains("\x1b["));
}

#[test]
fn everything_fits_eighty_columns_but_long_words() {
    for (name, host) in Host::all() {
        for line in host.check(&[]).stdout.lines() {
            let longest = line.split(' ').map(str::len).max().unwrap_or(0);
            assert!(line.chars().count() <= 80 || longest > 40, "{name}: {line}");
        }
    }
}

#[test]
fn what_the_kubelet_gets_is_shown_with_its_places() {
    let host = Host::new("kubeadm-debian-hetzner");
    let env = host.check(&["--show=env"]).stdout;
    let lines: Vec<&str> = env.lines().collect();
    let at = lines
        .iter()
        .position(|line| *line == "KUBELET_EXTRA_ARGS=")
        .unwrap();
    assert!(
        lines[at + 1].contains("from /etc/default/kubelet:1 (EnvironmentFile= at "),
        "{env}"
    );
    assert!(
        lines[at + 2].contains("over /etc/systemd/system/kubelet.service.d/20-hcloud.conf:3")
            && lines[at + 2].ends_with("KUBELET_EXTRA_ARGS=--cloud-provider=external"),
        "{env}"
    );
    let argv = host.check(&["--show=argv"]).stdout;
    assert!(
        argv.contains("--config=/var/lib/kubelet/config.yaml\n"),
        "{argv}"
    );
    let effective = host.check(&["--show=effective"]).stdout;
    assert!(
        effective.contains("cgroupDriver: \"systemd\""),
        "{effective}"
    );
    assert!(
        effective.contains("/var/lib/kubelet/config.yaml:"),
        "{effective}"
    );
    let dropins = host.check(&["--show=dropins"]).stdout;
    assert!(dropins.contains("20-hcloud.conf"), "{dropins}");
}

/// The block in the README below the command that made it.
#[test]
fn the_readme_shows_what_is_printed() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let block = readme
        .split("```")
        .find(|block| block.contains("$ nodevigil check --root rootfs "))
        .expect("README.md shows nodevigil check");
    let (_, block) = block.split_once("$ nodevigil ").unwrap();
    let (command, shown) = block.split_once('\n').unwrap();
    let host = Host::new("broken-five-ways");
    let arguments: Vec<&str> = command.split_whitespace().collect();
    let run = nodevigil_in(host.dir.path(), &arguments);
    assert_eq!(run.code, 1);
    let (shown, printed) = (shown.trim_end(), run.stdout.trim_end());
    if std::env::var_os("NODEVIGIL_WRITE_DOCS").is_some() {
        fs::write(
            repository().join("README.md"),
            readme.replace(shown, printed),
        )
        .unwrap();
        return;
    }
    assert_eq!(
        printed, shown,
        "README.md is not what is printed: make docs"
    );
}

#[test]
fn explain_knows_rules_reasons_and_flags() {
    let explain = |id: &str| nodevigil_in(repository(), &["explain", id]);
    for (id, word) in [
        ("SD001", "env-overridden-by-file"),
        ("KubeletCrashed", "KubeletHealthy"),
        ("--cloud-provider", "--cloud-provider"),
    ] {
        let run = explain(id);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains(word), "{}", run.stdout);
    }
    let run = explain("--cloud-provder");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(
        run.stderr.contains("did you mean --cloud-provider?"),
        "{}",
        run.stderr
    );
}
