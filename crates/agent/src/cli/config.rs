//! `nodevigil config check`.

use std::path::{Path, PathBuf};

use super::{GOOD, complain, print};
use crate::settings;

#[derive(Debug, clap::Subcommand)]
pub enum Config {
    Check(Check),
}

/// Check the settings files without using them
///
/// Exit code: 0 the settings are right, 78 they are refused.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Check these files and all *.toml of these directories [default: /etc/nodevigil and what else the agent reads]
    #[arg(value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

impl Config {
    pub fn run(self) -> anyhow::Result<u8> {
        let Self::Check(check) = self;
        match check.check(Path::new("/")) {
            Ok(answer) => print(&answer)?,
            Err(error) => {
                error.problems.iter().for_each(|problem| complain(problem));
                return Ok(settings::EXIT_CONFIG);
            }
        }
        Ok(GOOD)
    }
}

impl Check {
    fn check(&self, root_dir: &Path) -> Result<String, settings::Error> {
        let files = settings::find(root_dir, &self.paths)?;
        settings::load_files(&files)?;
        Ok(match files.len() {
            1 => "ok: 1 file\n".to_owned(),
            count => format!("ok: {count} files\n"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_answer_counts_the_files_that_were_read() {
        let root = tempfile::tempdir().unwrap();
        let check = Check { paths: vec![] };
        assert_eq!(check.check(root.path()).unwrap(), "ok: 0 files\n", "the defaults are in effect");
        let drop_ins = root.path().join("etc/nodevigil/config.d");
        fs::create_dir_all(&drop_ins).unwrap();
        fs::write(drop_ins.join("a.toml"), "").unwrap();
        assert_eq!(check.check(root.path()).unwrap(), "ok: 1 file\n");
        let missing = Check { paths: vec![root.path().join("missing.toml")] };
        let error = missing.check(root.path()).unwrap_err().to_string();
        assert!(error.ends_with("/missing.toml: No such file or directory (os error 2)"), "{error}");
    }
}
