//! The deb and the rpm, made twice and looked into: what is in them, that they are the same each time, what lintian and rpmlint say.
//!
//! `make` says where nfpm is (`NODEVIGIL_NFPM`) and which binary is packed (`NODEVIGIL_BIN`). How packages behave on a node is in
//! `tests/node/packages.rs`.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests stand outside the agent: they start programs and read files"
)]

#[path = "../../packaging/build/mod.rs"]
mod build;
mod files;
mod generated;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};

/// Any time will do, if it is the same.
const EPOCH: u32 = 1_790_000_000;

/// The packages, and a folder that goes with the last who holds them.
#[derive(Clone)]
struct Made {
    deb: PathBuf,
    rpm: PathBuf,
    work: PathBuf,
    binary: PathBuf,
    wanted: build::Wanted,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return fail(&error.into()),
    };
    let made = match make(folder.path()) {
        Ok(made) => made,
        Err(error) => return fail(&error),
    };
    let trial = |name: &str, test: fn(&Made) -> Result<()>| {
        let made = made.clone();
        Trial::test(name, move || {
            test(&made).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    let tests = vec![
        trial("reproducible", the_same_each_time),
        trial("files", files::each_file_is_there_with_its_mode),
        trial("same_files", files::the_rpm_has_what_the_deb_has),
        trial("untouched", files::nothing_of_the_operators_is_packed),
        trial("lintian", lintian_has_nothing_to_say),
        trial("rpmlint", rpmlint_has_nothing_to_say),
        trial(
            "copyright",
            generated::every_part_has_its_copyright_and_licence,
        ),
        trial("parts", generated::the_list_of_parts_is_whole),
        trial("linked", generated::the_list_of_parts_is_what_cargo_links),
        trial("manual", generated::every_subcommand_has_its_page),
        trial("completions", generated::shells_can_read_their_completions),
        trial("catalogue", generated::the_journal_reads_the_catalogue),
        trial(
            "scripts",
            the_scripts_are_sound_and_never_fail_for_strangers,
        ),
    ];
    libtest_mimic::run(&arguments, tests).exit_code()
}

fn fail(error: &anyhow::Error) -> ExitCode {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "the packages cannot be made: {error:#}").ok();
    ExitCode::FAILURE
}

fn make(work: &Path) -> Result<Made> {
    let variable = |name: &str| {
        let value = env::var_os(name).map(PathBuf::from);
        value.with_context(|| format!("{name} is not set: start this through make"))
    };
    let binary = variable("NODEVIGIL_BIN")?;
    let wanted = build::Wanted {
        version: build::version(),
        binary: binary.clone(),
        arch: build::Arch::Amd64,
        nfpm: variable("NODEVIGIL_NFPM")?,
        out: work.join("first"),
        epoch: EPOCH,
    };
    let [deb, rpm] = build::packages(&wanted)?;
    Ok(Made {
        deb,
        rpm,
        work: work.to_owned(),
        binary,
        wanted,
    })
}

/// What a program says; it must end well.
fn said(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .output()
        .with_context(|| program.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {text}{complaint}"
    );
    Ok(text)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Another folder, another name of the binary with another time and mode; nothing of it may be seen.
fn the_same_each_time(made: &Made) -> Result<()> {
    let elsewhere = made.work.join("somewhere else");
    fs::create_dir_all(&elsewhere)?;
    let binary = elsewhere.join("a binary");
    fs::copy(&made.binary, &binary)?;
    let time = SystemTime::now() - Duration::from_hours(24 * 400);
    fs::File::options()
        .write(true)
        .open(&binary)?
        .set_modified(time)?;
    let wanted = build::Wanted {
        binary,
        out: elsewhere,
        ..made.wanted.clone()
    };
    let [deb, rpm] = build::packages(&wanted)?;
    for (first, second) in [(&made.deb, deb), (&made.rpm, rpm)] {
        ensure!(
            fs::read(first)? == fs::read(&second)?,
            "{} and {} differ",
            first.display(),
            second.display()
        );
    }
    Ok(())
}

fn lintian_has_nothing_to_say(made: &Made) -> Result<()> {
    let said = said(
        "lintian",
        &[
            "--allow-root",
            "--display-info",
            "--pedantic",
            "--fail-on",
            "error,warning,info,pedantic",
            text(&made.deb),
        ],
    )?;
    ensure!(said.trim().is_empty(), "{said}");
    Ok(())
}

/// rpmlint unpacks the rpm with cpio, whose names begin with a slash: as root that would install it on this machine.
fn rpmlint_has_nothing_to_say(made: &Made) -> Result<()> {
    let shim = made.work.join("shim");
    fs::create_dir_all(&shim)?;
    let cpio = shim.join("cpio");
    let real = said("sh", &["-c", "command -v cpio"])?;
    let script = format!(
        "#!/bin/sh\nexec {} --no-absolute-filenames \"$@\"\n",
        real.trim()
    );
    fs::write(&cpio, script)?;
    fs::set_permissions(&cpio, fs::Permissions::from_mode(0o755))?;
    let own = build::repository().join("packaging/rpmlint.toml");
    let path = format!("{}:{}", shim.display(), env::var("PATH")?);
    let output = Command::new("rpmlint")
        .args(["--config", text(&own), text(&made.rpm)])
        .env("PATH", path)
        .output()
        .context("rpmlint")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let is_clean = said.contains("1 packages") && said.contains(" 0 errors, 0 warnings");
    ensure!(output.status.success() && is_clean, "{said}");
    Ok(())
}

/// The content of one of the deb's files.
fn packed(made: &Made, path: &str) -> Result<Vec<u8>> {
    let folder = made.work.join("unpacked");
    if !folder.exists() {
        let partial = made
            .work
            .join(format!("unpacking-{:?}", std::thread::current().id()));
        said("dpkg-deb", &["--extract", text(&made.deb), text(&partial)])?;
        // Whoever was first has the same.
        fs::rename(&partial, &folder).ok();
    }
    fs::read(folder.join(path)).with_context(|| path.to_owned())
}

/// What dpkg and rpm call them with in other cases: nothing is done.
fn the_scripts_are_sound_and_never_fail_for_strangers(_: &Made) -> Result<()> {
    let folder = build::repository().join("packaging/scripts");
    for (script, arguments) in [
        (
            "postinst",
            &["abort-upgrade", "abort-remove", "triggered"][..],
        ),
        (
            "prerm",
            &["upgrade", "failed-upgrade", "deconfigure", "1", "2"],
        ),
        (
            "postrm",
            &[
                "upgrade",
                "abort-install",
                "abort-upgrade",
                "disappear",
                "1",
                "2",
            ],
        ),
    ] {
        let path = folder.join(script);
        said("sh", &["-n", text(&path)])?;
        for argument in arguments {
            // With no program to be found, anything that it tried would fail or be seen.
            let output = Command::new("/bin/sh")
                .args(["-x", text(&path), argument])
                .env("PATH", "/nowhere")
                .output()?;
            let trace = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{script} {argument}: {trace}");
            let done: Vec<&str> = trace.lines().filter(|line| *line != "+ set -e").collect();
            ensure!(done == ["+ exit 0"], "{script} {argument}: {trace}");
        }
    }
    Ok(())
}
