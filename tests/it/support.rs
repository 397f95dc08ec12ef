//! docs/support.md says what the tests run on: what of that is written down elsewhere is compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn page() -> String {
    read("docs/support.md")
}

/// The rows of the first table, each by its cells.
fn rows() -> Vec<Vec<String>> {
    let page = page();
    let table = page.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = table.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// The Kubernetes of a go.mod, without the `v`.
fn kubernetes(path: impl AsRef<Path>) -> String {
    let text = read(path);
    let line = text
        .lines()
        .find(|line| line.contains("k8s.io/kubernetes v"));
    let version = line.unwrap().split(" v").nth(1).unwrap();
    version.split_whitespace().next().unwrap().to_owned()
}

/// What a program says of itself; `None`: it is not here.
fn said(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn kubernetes_is_the_one_of_the_tests() {
    let version = kubernetes("tests/cluster/go.mod");
    let rows = rows();
    for row in rows.iter().filter(|row| row[6].contains("tests/node")) {
        assert_eq!(row[4], version);
    }
    assert!(rows[0][6].starts_with("yes"), "{:?}", rows[0]);
    let asked: BTreeSet<String> = fs::read_dir(root().join("tests/kubelet/versions"))
        .unwrap()
        .flatten()
        .map(|folder| kubernetes(folder.path().join("go.mod")))
        .collect();
    let row = rows.iter().find(|row| row[6].contains("tests/kubelet"));
    let told: BTreeSet<String> = row.unwrap()[4].split(", ").map(str::to_owned).collect();
    assert_eq!(told, asked);
    // A number of a release that no test knows stands nowhere.
    for row in &rows {
        for word in row[4].split([',', ' ']).filter(|word| word.contains('.')) {
            assert!(word == version || asked.contains(word), "{word}");
        }
    }
}

#[test]
fn the_guests_kernel_is_the_one_of_its_image() {
    let rows = rows();
    let row = rows.iter().find(|row| row[6].contains("tests/vm")).unwrap();
    let image = read("tests/vm/image.sh");
    assert!(
        image.contains(&format!("linux-image-{}", row[2])),
        "{row:?}"
    );
}

#[test]
fn every_tree_of_files_is_named_and_no_other() {
    let page = page();
    let told = page.split("`tests/hosts`").nth(1).unwrap();
    let told = told.split("How it understands").next().unwrap();
    let told: BTreeSet<&str> = told.split('`').skip(1).step_by(2).collect();
    let hosts: Vec<String> = fs::read_dir(root().join("tests/hosts"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(told, hosts.iter().map(String::as_str).collect());
}

/// The nodes of the tests are made of the machine's own packages.
#[test]
fn debians_programs_are_those_of_the_first_row() {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian_12 = release.contains("\nID=debian\n") && release.contains("VERSION_ID=\"12\"");
    if !is_debian_12 {
        return; // another machine's versions are no matter of this row
    }
    let row = &rows()[0];
    if let Some(systemd) = said("systemctl", "--version") {
        assert!(
            systemd.starts_with(&format!("systemd {} ", row[1])),
            "{systemd}"
        );
    }
    if let Some(containerd) = said("containerd", "--version") {
        let version = row[5].strip_prefix("containerd ").unwrap();
        assert!(containerd.contains(version), "{containerd}");
    }
}
