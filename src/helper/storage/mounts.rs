//! `/proc/PID/mountinfo`: which mount a path lies on, and whether that is read-only. Read line by line: a node has
//! thousands of mounts.

use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use crate::host::files::{FileError, Root};

/// A line is a few hundred bytes; an overlay with many layers may have a page.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// No table that is read here is longer; what comes after is not looked at.
const MAX_TABLE_BYTES: u64 = 64 * 1024 * 1024;

/// A mount, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mount {
    /// `MAJOR:MINOR`.
    pub(super) device: String,
    /// The file system's kind.
    pub(super) kind: String,
    /// What is mounted: `/dev/sda1`.
    pub(super) source: String,
    pub(super) point: PathBuf,
    /// The mount's own options, and those of the file system behind it.
    pub(super) options: [String; 2],
}

impl Mount {
    /// By what it is read-only: the file system itself, or only this way to it.
    pub(super) fn read_only(&self) -> Option<&'static str> {
        let [own, behind] = &self.options;
        let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
        // ext4 since Linux 6.16 says so instead of `ro` when it has met an error.
        if has(behind, "emergency_ro") {
            return Some("the kernel has made it read-only after an error (emergency_ro)");
        }
        if has(behind, "ro") {
            return Some("the file system is mounted read-only");
        }
        has(own, "ro").then_some("the mount is read-only")
    }

    /// A line of the table; `None` if it is none.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (_id, _parent) = (fields.next()?, fields.next()?);
        let device = text(fields.next()?);
        let _root = fields.next()?;
        let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.next()?)));
        let own = text(fields.next()?);
        // Optional fields, then a hyphen.
        fields.find(|field| *field == b"-")?;
        let kind = text(fields.next()?);
        let source = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
        let behind = text(fields.next()?);
        Some(Self {
            device,
            kind,
            source,
            point,
            options: [own, behind],
        })
    }
}

/// `\040` and its like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let number = octal.and_then(|digits| {
            digits.iter().try_fold(0_u8, |number, digit| {
                let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
                number.checked_mul(8)?.checked_add(digit)
            })
        });
        let (byte, left) = match number {
            Some(byte) => (byte, &tail[3..]),
            None => (*first, tail),
        };
        bytes.push(byte);
        rest = left;
    }
    bytes
}

/// The mount that each path lies on, in the paths' order: the longest that leads there, of equals the one on top.
pub(super) fn find(
    root: &Root,
    table: &str,
    paths: &[&Path],
) -> Result<Vec<Option<Mount>>, FileError> {
    let file = root.open(table)?;
    let error = |source: io::Error| FileError {
        action: "read",
        path: table.into(),
        source,
    };
    find_in(BufReader::new(file.take(MAX_TABLE_BYTES)), paths).map_err(error)
}

fn find_in(mut reader: impl io::BufRead, paths: &[&Path]) -> io::Result<Vec<Option<Mount>>> {
    let mut found: Vec<Option<Mount>> = vec![None; paths.len()];
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)? {
        let Some(mount) = Mount::parse(&line) else {
            continue;
        };
        for (path, best) in paths.iter().zip(&mut found) {
            let length = |mount: &Mount| mount.point.as_os_str().len();
            let is_better = best
                .as_ref()
                .is_none_or(|best| length(&mount) >= length(best));
            if path.starts_with(&mount.point) && is_better {
                *best = Some(mount.clone());
            }
        }
    }
    Ok(found)
}

/// Of a table that is there already: the mount that each path lies on by its point, and whether that is read-only.
pub fn mounts_in(table: &[u8], paths: &[&Path]) -> io::Result<Vec<Option<(PathBuf, bool)>>> {
    let shown = |mount: Mount| (mount.point.clone(), mount.read_only().is_some());
    let found = find_in(table, paths)?;
    Ok(found.into_iter().map(|found| found.map(shown)).collect())
}

/// The next line without its newline; of one that is too long the beginning. `false` at the end.
fn next_line(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let bound = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    if reader.by_ref().take(bound).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        reader.skip_until(b'\n')?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::helper::testing::{host, write};

    /// From a node of ours: ext4 on a disk of its own, a container's tmpfs below it, a stacked mount, a name with a space.
    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
108 27 7:0 / /var/lib/kubelet rw,relatime shared:5 master:2 - ext4 /dev/loop0 rw,errors=remount-ro
109 108 0:50 / /var/lib/kubelet/pods/x/volumes/secret rw,relatime - tmpfs tmpfs rw,size=64k
110 27 0:60 / /var/lib/containerd rw,relatime - tmpfs tmpfs rw
111 110 0:61 / /var/lib/containerd ro,relatime - tmpfs tmpfs rw
112 27 8:17 / /mnt/a\\040disk rw - xfs /dev/sdb1 ro,attr2
not a line
";

    fn find_in(table: &str, path: &str) -> Option<Mount> {
        let (_folder, root) = host();
        write(&root, "/proc/1/mountinfo", table);
        find(&root, "/proc/1/mountinfo", &[Path::new(path)])
            .unwrap()
            .remove(0)
    }

    #[test]
    fn a_path_lies_on_the_longest_mount_and_the_one_on_top() {
        let kubelet = find_in(TABLE, "/var/lib/kubelet/pods").unwrap();
        assert_eq!(
            (kubelet.device.as_str(), kubelet.source.as_str()),
            ("7:0", "/dev/loop0")
        );
        assert_eq!((kubelet.kind.as_str(), kubelet.read_only()), ("ext4", None));
        assert_eq!(find_in(TABLE, "/var/lib/kubelets").unwrap().device, "254:0");
        let on_top = find_in(TABLE, "/var/lib/containerd").unwrap();
        assert_eq!(on_top.device, "0:61");
        assert_eq!(on_top.read_only(), Some("the mount is read-only"));
        let spaced = find_in(TABLE, "/mnt/a disk/kubelet").unwrap();
        assert_eq!(
            spaced.read_only(),
            Some("the file system is mounted read-only")
        );
        assert_eq!(find_in("", "/"), None);
    }

    /// As Linux 6.18 shows an ext4 whose `errors=remount-ro` has struck (recorded here), and Linux 6.1 (`ro`).
    #[test]
    fn an_ext4_after_an_error_is_read_only_on_every_kernel() {
        for options in ["rw,errors=remount-ro,emergency_ro", "ro,errors=remount-ro"] {
            let line = format!("108 88 7:0 / /k rw,relatime - ext4 /dev/loop0 {options}\n");
            assert!(find_in(&line, "/k").unwrap().read_only().is_some());
        }
    }

    #[test]
    fn a_line_without_end_is_passed_over() {
        let long = format!("1 1 0:1 / /{} rw - a b rw\n{TABLE}", "x".repeat(99_999));
        assert_eq!(find_in(&long, "/etc").unwrap().device, "254:0");
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(table in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Mount::parse(&table);
            let _ = unescape(&table);
        }
    }
}
