//! Pressure stall information: how much of the last seconds tasks waited for processor, memory or disk.
//!
//! The kernel's table is kept open and read into a buffer on the stack: a read allocates nothing and never blocks.

use std::{fmt, io, os::fd::OwnedFd};

use super::files::Root;

/// Two lines of at most some 75 bytes.
const MAX_BYTES: usize = 256;

/// What tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A processor.
    Cpu,
    /// Memory: reclaim, swap, pages that were dropped and are read anew.
    Memory,
    /// A disk.
    Io,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// Percent of the time, averaged over 10 s.
    pub avg10: f32,
    /// Over 60 s.
    pub avg60: f32,
    /// Over 300 s.
    pub avg300: f32,
    /// Time in all, in microseconds.
    pub total_us: u64,
}

impl Share {
    /// Of the last 10 s, in whole percent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a percentage; the cast bounds what is none"
    )]
    pub fn percent(&self) -> u32 {
        self.avg10 as u32
    }
}

/// What one read says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// At least one task waited.
    pub some: Share,
    /// All tasks that were not idle waited. Kernels before 5.13 do not say it of the processor.
    pub full: Option<Share>,
}

/// One table, kept open.
pub struct Pressure {
    file: OwnedFd,
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure").finish_non_exhaustive()
    }
}

impl Pressure {
    /// The whole machine's.
    ///
    /// # Errors
    /// When the kernel has no such table: it is built without it, or was booted with `psi=0`.
    pub fn open(root: &Root, resource: Resource) -> io::Result<Self> {
        Self::open_at(root, &format!("/proc/pressure/{}", resource.name()))
    }

    /// That of a control group (`/system.slice/kubelet.service`), on cgroup v2.
    ///
    /// # Errors
    /// When there is none.
    pub fn open_group(root: &Root, group: &str, resource: Resource) -> io::Result<Self> {
        let (group, name) = (group.trim_matches('/'), resource.name());
        Self::open_at(root, &format!("/sys/fs/cgroup/{group}/{name}.pressure"))
    }

    fn open_at(root: &Root, path: &str) -> io::Result<Self> {
        let file = root.open(path).map_err(|error| error.source)?.into();
        let mut opened = Self { file };
        // A kernel that was booted with psi=0 has the table, and refuses to read it.
        opened.read()?;
        Ok(opened)
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the kernel refuses, or says something else than it should.
    pub fn read(&mut self) -> io::Result<Stall> {
        let mut text = [0; MAX_BYTES];
        let length = rustix::io::pread(&self.file, &mut text, 0)?;
        parse(&text[..length]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn parse(text: &[u8]) -> Option<Stall> {
    let text = str::from_utf8(text).ok()?;
    let (mut some, mut full) = (None, None);
    for line in text.lines() {
        let (which, rest) = line.split_once(' ')?;
        match which {
            "some" => some = Some(share(rest)?),
            "full" => full = Some(share(rest)?),
            _ => {} // of a kernel to come
        }
    }
    Some(Stall { some: some?, full })
}

fn share(fields: &str) -> Option<Share> {
    let mut share = Share::default();
    let mut known = 0;
    for field in fields.split(' ') {
        let (name, value) = field.split_once('=')?;
        match name {
            "avg10" => share.avg10 = value.parse().ok()?,
            "avg60" => share.avg60 = value.parse().ok()?,
            "avg300" => share.avg300 = value.parse().ok()?,
            "total" => share.total_us = value.parse().ok()?,
            _ => continue,
        }
        known += 1;
    }
    (known == 4).then_some(share)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Linux 6.18 wrote it while this machine compiled.
    const REAL: &str = "some avg10=64.98 avg60=23.66 avg300=16.03 total=14061504514\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

    fn host(text: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        root.create_dir_all("/proc/pressure").unwrap();
        let path = "/proc/pressure/cpu";
        root.write_atomically(path, text.as_bytes()).unwrap();
        (folder, root)
    }

    #[test]
    fn both_lines_are_read_again_and_again() {
        let (_folder, root) = host(REAL);
        let mut pressure = Pressure::open(&root, Resource::Cpu).unwrap();
        for _ in 0..2 {
            let stall = pressure.read().unwrap();
            assert!((stall.some.avg10 - 64.98).abs() < 0.001, "{stall:?}");
            assert_eq!(stall.some.total_us, 14_061_504_514);
            assert_eq!(stall.full.unwrap().total_us, 7);
        }
    }

    #[test]
    fn an_older_kernel_has_no_full_line_for_the_processor() {
        let (some, _) = REAL.split_once('\n').unwrap();
        let (_folder, root) = host(some);
        let stall = Pressure::open(&root, Resource::Cpu)
            .unwrap()
            .read()
            .unwrap();
        assert_eq!(stall.full, None);
    }

    #[test]
    fn what_is_not_there_or_no_pressure_is_an_error() {
        let (_folder, root) = host("");
        assert!(Pressure::open(&root, Resource::Cpu).is_err());
        assert!(Pressure::open(&root, Resource::Memory).is_err());
        assert!(Pressure::open_group(&root, "/a.slice", Resource::Cpu).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,300}") {
            parse(text.as_bytes());
        }
    }
}
