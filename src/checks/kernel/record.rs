//! One record of `/dev/kmsg`: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT`, then dictionary lines that begin with a space.
//!
//! The kernel writes everything that is not printable ASCII as `\xHH`, so that a record's text is one line.

use std::time::Duration;

/// A record's head and text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who wrote it: 0 is the kernel, everything else came from user space through `/dev/kmsg`, which cannot claim 0.
    pub facility: u32,
    /// Its number; they go up by one.
    pub sequence: u64,
    /// The kernel's stamp: microseconds since the boot, suspended time left out.
    pub at: Duration,
    /// The first line; the dictionary behind it names the device as numbers.
    pub text: &'a str,
}

impl<'a> Record<'a> {
    /// Takes a record apart; `None` if it is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (priority, rest) = number(bytes)?;
        let (sequence, rest) = number(after(rest, b',')?)?;
        let (micros, rest) = number(after(rest, b',')?)?;
        // The flag tells a fragment of a line, and newer kernels say more behind it; none of it matters here.
        let text = &rest[rest.iter().position(|byte| *byte == b';')? + 1..];
        let end = text.iter().position(|byte| *byte == b'\n');
        let text = std::str::from_utf8(&text[..end.unwrap_or(text.len())]).ok()?;
        Some(Self {
            facility: u32::try_from(priority >> 3).ok()?,
            sequence,
            at: Duration::from_micros(micros),
            text,
        })
    }

    /// Whether the kernel itself says so.
    pub fn is_kernels(&self) -> bool {
        self.facility == 0
    }
}

fn after(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    let (first, rest) = bytes.split_first()?;
    (*first == wanted).then_some(rest)
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if digits == 0 {
        return None;
    }
    let (number, rest) = bytes.split_at(digits);
    let add = |sum: u64, byte: &u8| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    Some((number.iter().try_fold(0, add)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read on Linux 6.18 and, the one with the dictionary and the caller, on 5.10.
    #[test]
    fn records_are_taken_apart() {
        let record =
            Record::parse(b"6,26,1180,-;ACPI: Early table checksum verification disabled\n");
        let record = record.unwrap();
        assert!(record.is_kernels());
        assert_eq!(
            (record.sequence, record.at),
            (26, Duration::from_micros(1180))
        );
        assert_eq!(
            record.text,
            "ACPI: Early table checksum verification disabled"
        );
        let record = Record::parse(
            b"6,187,363180,-,caller=T1;acpi PNP0A08:00: _OSC: OS supports; all\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A08:00\n",
        );
        assert_eq!(
            record.unwrap().text,
            "acpi PNP0A08:00: _OSC: OS supports; all"
        );
        let ours =
            Record::parse(b"46,1501,33171169442,-;systemd-journald[41]: Received client request\n");
        assert_eq!(ours.unwrap().facility, 5);
        let user = Record::parse(b"12,9,8,-;oom-kill:constraint=CONSTRAINT_NONE\n").unwrap();
        assert!(!user.is_kernels());
    }

    #[test]
    fn what_is_no_record_is_nothing() {
        for bytes in [
            &b""[..],
            b"6",
            b"6,1,2,-",
            b"6,,2,-;x",
            b",1,2,-;x",
            b"99999999999999999999999,1,2,-;x",
            b"6,1,2;",
            b"6,1,2,-;\xff",
        ] {
            let record = Record::parse(bytes);
            assert!(
                record.is_none_or(|record| record.text.is_empty()),
                "{record:?}"
            );
        }
    }
}
