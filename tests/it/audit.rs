//! `make audit` where the advisories' database cannot be had: the script, with a cargo-deny of ours.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

/// Renews nothing, as without a network; what it is asked to check, it finds well.
const DENY: &str = "#!/bin/sh
case $* in
*'fetch db') printf 'failed to fetch:\\nfatal: no such host\\n\\n' >&2; exit 1 ;;
*'--offline check '*'advisories') echo 'advisories ok' ;;
*) exit 9 ;;
esac
";

fn audit(home: &TempDir) -> Output {
    let deny = home.path().join("cargo-deny");
    fs::write(&deny, DENY).unwrap();
    fs::set_permissions(&deny, fs::Permissions::from_mode(0o755)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/audit.sh");
    let mut audit = Command::new(script);
    // Its cargo has nothing to fetch.
    std::os::unix::fs::symlink("/bin/true", home.path().join("cargo")).ok();
    let path = format!("{}:/usr/bin:/bin", home.path().display());
    audit
        .arg(deny)
        .env("CARGO_HOME", home.path())
        .env("PATH", path);
    audit.output().unwrap()
}

#[test]
fn without_a_database_it_says_in_one_line_where_it_looked_and_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let output = audit(&home);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    let folder = home.path().join("advisory-dbs");
    for part in [
        folder.to_str().unwrap(),
        "nothing was checked",
        "https://github.com/RustSec/advisory-db cannot be fetched (no such host)",
        "copy that folder",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn one_that_cannot_be_renewed_is_used_and_its_day_is_said() {
    let home = tempfile::tempdir().unwrap();
    let database = home.path().join("advisory-dbs/advisory-db-1/.git");
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("HEAD"), "").unwrap();
    let fetched = fs::File::create(database.join("FETCH_HEAD")).unwrap();
    let day = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_000);
    fetched.set_modified(day).unwrap();
    let output = audit(&home);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("the database of 2024-10-04 is used"),
        "{said}"
    );
    assert_eq!(output.stdout, b"advisories ok\n");
}
