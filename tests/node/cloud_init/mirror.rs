//! An operator's mirror of packages: a server that user data downloads from.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::k3s;
use crate::packages::kit::Kit;
use crate::support::enter;

/// A request line and its headers.
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

/// The mirror of the run; it has both versions of the deb, and what stands in for k3s' installer.
pub(crate) struct Mirror {
    port: u16,
    shelf: [PathBuf; 3],
}

/// What user data needs to know of a package.
pub(crate) struct Package {
    pub(crate) url: String,
    pub(crate) sha256: String,
}

impl Mirror {
    /// Opened once, and there until the run ends.
    pub(crate) fn open() -> Result<&'static Self> {
        static MIRROR: OnceLock<Result<Mirror, String>> = OnceLock::new();
        let mirror = MIRROR.get_or_init(|| Self::start().map_err(|error| format!("{error:#}")));
        mirror.as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn start() -> Result<Self> {
        let kit = Kit::made()?;
        let k3s = enter::work().join("k3s-install.sh");
        fs::write(&k3s, k3s::STAND_IN.replace("NODE_IP", enter::ADDRESS))?;
        let shelf = [kit.deb().to_owned(), kit.next_deb().to_owned(), k3s];
        let listener = TcpListener::bind((enter::ADDRESS, 0)).context("the mirror's port")?;
        let port = listener.local_addr()?.port();
        let served = shelf.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who hangs up early is told nothing.
                let _ = answer(stream, &served);
            }
        });
        Ok(Self { port, shelf })
    }

    /// The version of these sources.
    pub(crate) fn first(&self) -> Result<Package> {
        self.package(0)
    }

    /// The one that comes after.
    pub(crate) fn next(&self) -> Result<Package> {
        self.package(1)
    }

    /// Where k3s' installer is.
    pub(crate) fn k3s(&self) -> String {
        self.url(2)
    }

    fn url(&self, index: usize) -> String {
        format!(
            "http://{}:{}/{}",
            enter::ADDRESS,
            self.port,
            name(&self.shelf[index])
        )
    }

    fn package(&self, index: usize) -> Result<Package> {
        let path = &self.shelf[index];
        let summed = Command::new("sha256sum").arg(path).output()?;
        let text = String::from_utf8(summed.stdout)?;
        let sha256 = text.split_whitespace().next().unwrap_or_default();
        ensure!(sha256.len() == 64, "sha256sum said {text}");
        Ok(Package {
            url: self.url(index),
            sha256: sha256.to_owned(),
        })
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Hands out the package that is asked for, or 404.
fn answer(mut stream: TcpStream, shelf: &[PathBuf]) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?.take(MAX_REQUEST_BYTES)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let wanted = first.split(' ').nth(1).unwrap_or_default();
    let found = shelf
        .iter()
        .find(|path| wanted.strip_prefix('/') == Some(&name(path)));
    let (status, bytes) = match found {
        Some(path) => ("200 OK", fs::read(path)?),
        None => ("404 Not Found", Vec::new()),
    };
    let length = bytes.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(&bytes)
}
