//! What is printed, as it is printed.

use super::*;
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::resolve;
use kubelet_config::kubelet::tree::MemoryTree;

const ENV: &str = "/etc/default/kubelet";
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";

fn shown(tree: &MemoryTree, finding: &Finding) -> String {
    let snapshot = resolve::resolve(tree, resolve::Inputs::default());
    let sources = Sources::read(tree, &snapshot, std::slice::from_ref(finding));
    one(finding, &sources, false, Style { is_colored: false, columns: 80, is_verbose: false })
}

fn tree() -> MemoryTree {
    MemoryTree::new()
        .file(ENV, "# ours\nKUBELET_EXTRA_ARGS=\n")
        .file(DROP_IN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n")
}

#[test]
fn a_finding_shows_the_words_and_who_overrides_whom() {
    let at = Location::file(ENV).at(2, 1, 19);
    let mut finding = Finding::new(
        "XX001",
        Severity::Error,
        at,
        "KUBELET_EXTRA_ARGS is empty here, and a file always beats Environment=: --cloud-provider=external is lost",
    )
    .step(Location::file(DROP_IN).at(2, 14, 43), "lost")
    .step(
        Location::file("/gone").at_line(3),
        "a location that does not exist any more, with a text of more than one line in width",
    );
    let fix = "write KUBELET_EXTRA_ARGS=--cloud-provider=external into /etc/default/kubelet:2, then\nsystemctl restart kubelet";
    finding.fix = Some(fix.to_owned());
    insta::assert_snapshot!(shown(&tree(), &finding), @r#"
    error[XX001]: KUBELET_EXTRA_ARGS is empty here, and a file always beats
      Environment=: --cloud-provider=external is lost
     --> /etc/default/kubelet:2:1
      |
    2 | KUBELET_EXTRA_ARGS=
      | ^^^^^^^^^^^^^^^^^^^
      |
     ::: /etc/systemd/system/kubelet.service.d/20-cloud.conf:2:14
      |
    2 | Environment="KUBELET_EXTRA_ARGS=--cloud-provider=external"
      |              ------------------------------------------- lost
      |
      = note: /gone:3: a location that does not exist any more, with a text of
              more than one line in width
      = help: write KUBELET_EXTRA_ARGS=--cloud-provider=external into
              /etc/default/kubelet:2, then
              systemctl restart kubelet
    "#);
}

#[test]
fn a_secret_file_is_named_and_not_shown() {
    let tree = tree().file("/etc/kubernetes/kubelet.conf", "kind: Config\ntoken: abc\n").file("/x/token", "abc\n");
    for (file, line) in [("/etc/kubernetes/kubelet.conf", 2), ("/x/token", 1)] {
        let at = Location::file(file).at_line(line);
        let text = shown(&tree, &Finding::new("XX001", Severity::Warning, at, "message"));
        assert!(!text.contains("abc") && text.contains(file), "{text}");
    }
}

#[test]
fn long_lines_and_unusual_locations_fit() {
    let long = format!("A=\"{} --end\"\n", "--some-flag=value ".repeat(40));
    let tree = MemoryTree::new().file(ENV, long.as_str());
    let width = u32::try_from(long.len()).unwrap();
    for (line, column, mark) in
        [(1, 600, 10), (1, 1, width), (1, 0, 0), (1, 9999, 3), (9, 1, 1), (0, 0, 0), (1, width, 500)]
    {
        let at = Location::file(ENV).at(line, column, mark);
        let mut finding =
            Finding::new("XX001", Severity::Fatal, at.clone(), "word ".repeat(60)).step(at, "label ".repeat(30));
        finding.fix = Some("fix ".repeat(50));
        let text = shown(&tree, &finding);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\nof\n{text}");
        }
    }
}

#[test]
fn color_is_only_added() {
    let tree = tree();
    let snapshot = resolve::resolve(&tree, resolve::Inputs::default());
    let at = Location::file(ENV).at(2, 1, 18);
    let mut finding = Finding::new("XX001", Severity::Warning, at, "message");
    finding.fix = Some("a fix".to_owned());
    let sources = Sources::read(&tree, &snapshot, std::slice::from_ref(&finding));
    let [plain, colored] = [false, true]
        .map(|is_colored| one(&finding, &sources, false, Style { is_colored, columns: 80, is_verbose: false }));
    assert!(!plain.contains('\x1b') && colored.contains("\x1b[1;93m"));
    let mut stripped = colored.clone();
    while let Some(start) = stripped.find('\x1b') {
        let end = start + stripped[start..].find('m').unwrap();
        stripped.replace_range(start..=end, "");
    }
    assert_eq!(stripped, plain);
}
