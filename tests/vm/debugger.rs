//! The emulator's debugger, by which a test changes the guest's kernel while it runs: some of its faults nothing else provokes.
//!
//! It speaks the remote protocol of gdb. The guest stands while a debugger is connected.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Writes bytes at a physical address, and returns what was there.
pub(crate) fn poke(socket: &Path, at: u64, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).context("the emulator's debugger")?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    // The kernel's own addresses mean nothing while the page tables of a process are loaded.
    expect_ok(&mut stream, "Qqemu.PhyMemMode:1")?;
    let length = bytes.len();
    let before = ask(&mut stream, &format!("m{at:x},{length:x}"))?;
    let pairs = before.as_bytes().chunks(2);
    let before = pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    let before = before.collect::<Result<Vec<u8>>>()?;
    ensure!(before.len() == length, "read at {at:x}: {before:x?}");
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // a String takes all
        hex
    });
    expect_ok(&mut stream, &format!("M{at:x},{length:x}:{hex}"))?;
    expect_ok(&mut stream, "D")?; // the guest goes on
    Ok(before)
}

fn expect_ok(stream: &mut UnixStream, packet: &str) -> Result<()> {
    let answer = ask(stream, packet)?;
    ensure!(answer == "OK", "{packet}: {answer}");
    Ok(())
}

fn ask(stream: &mut UnixStream, packet: &str) -> Result<String> {
    let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
    stream.write_all(format!("${packet}#{sum:02x}").as_bytes())?;
    let mut answer = Vec::new();
    // `+`, then `$answer#sum`.
    while answer.len() < 3 || answer[answer.len() - 3] != b'#' {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    stream.write_all(b"+")?;
    let text = String::from_utf8_lossy(&answer);
    let text = text.split_once('$').map_or("", |(_, text)| text);
    Ok(text[..text.len().saturating_sub(3)].to_owned())
}
