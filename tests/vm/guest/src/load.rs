//! The loads: one that grows, one that touches a file all over, one that reads the disk through and one that writes.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use crate::place::Dice;
use crate::{Outcome, flag, tables};

const PAGE: usize = 4096;
const CHUNK: usize = 256 << 10;
const MIB: usize = 1 << 20;

/// `grow --mib-per-s N [--mib N] [--until-available MIB] [--until-kill] [--random-bytes N] [--hold-s N] [--touch-per-s N]`: anonymous memory that
/// grows evenly, to a size, until so little is available or until the kernel has killed somebody, and is then held and touched. Each page has so many bytes
/// that do not compress (all zero but one, if none are asked for).
pub(crate) fn grow(words: impl Iterator<Item = String>) -> Outcome {
    let words: Vec<String> = words.collect();
    let rate: f64 = flag(&words, "--mib-per-s").ok_or("--mib-per-s is missing")?;
    let most: usize = flag(&words, "--mib").unwrap_or(4096);
    let until: u64 = flag(&words, "--until-available").unwrap_or(0);
    let random = flag(&words, "--random-bytes").unwrap_or(0).min(PAGE);
    let hold = Duration::from_secs(flag(&words, "--hold-s").unwrap_or(0));
    let touch_per_s: usize = flag(&words, "--touch-per-s").unwrap_or(20_000);
    let mut meminfo = File::open("/proc/meminfo")?;
    let mut vmstat = tables::Table::open("/proc/vmstat", 16384);
    let mut kills = || {
        vmstat.read();
        vmstat.value("oom_kill")
    };
    let killed_before = words
        .iter()
        .any(|word| word == "--until-kill")
        .then(&mut kills);
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut chunks: Vec<Vec<u8>> = Vec::with_capacity(most * MIB / CHUNK);
    let began = Instant::now();
    while chunks.len() < most * MIB / CHUNK {
        if until > 0 && tables::available_mib(&mut meminfo)? <= until {
            break;
        }
        if killed_before.is_some_and(|before| kills() != before) {
            break;
        }
        let mut chunk = vec![0_u8; CHUNK];
        for page in chunk.chunks_mut(PAGE) {
            page[0] = 1;
            for word in page[..random].chunks_exact_mut(8) {
                word.copy_from_slice(&dice.roll().to_le_bytes());
            }
        }
        chunks.push(chunk);
        let due = Duration::from_secs_f64(chunks.len() as f64 * CHUNK as f64 / MIB as f64 / rate);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let held = Instant::now();
    while held.elapsed() < hold {
        for _ in 0..touch_per_s / 100 {
            let chunk = dice.below(chunks.len());
            let page = dice.below(CHUNK / PAGE) * PAGE;
            if let Some(chunk) = chunks.get_mut(chunk) {
                chunk[page] = chunk[page].wrapping_add(1).max(1);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// `touch --file PATH --mib N --secs N`: reads pages of a file all over, twice each, so that the kernel counts their loss.
pub(crate) fn touch(words: impl Iterator<Item = String>) -> Outcome {
    let words: Vec<String> = words.collect();
    let path: String = flag(&words, "--file").ok_or("--file is missing")?;
    let pages = flag(&words, "--mib").unwrap_or(40) * MIB / PAGE;
    let end = Instant::now() + Duration::from_secs(flag(&words, "--secs").unwrap_or(20));
    let file = File::open(&path).map_err(|why| format!("{path}: {why}"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let mut dice = Dice::new(7);
    let mut byte = [0_u8; 64];
    while Instant::now() < end {
        let page = dice.below(pages);
        for at in [page, (page + 1) % pages, page] {
            std::os::unix::fs::FileExt::read_at(&file, &mut byte, (at * PAGE) as u64)?;
        }
    }
    Ok(())
}

/// `read --file PATH [--times N] [--mib-per-s N]`: reads a file or a disk from beginning to end.
pub(crate) fn read(words: impl Iterator<Item = String>) -> Outcome {
    let words: Vec<String> = words.collect();
    let path: String = flag(&words, "--file").ok_or("--file is missing")?;
    let mut file = File::open(&path).map_err(|why| format!("{path}: {why}"))?;
    let mut buffer = vec![0_u8; MIB];
    for _ in 0..flag(&words, "--times").unwrap_or(1) {
        file.seek(SeekFrom::Start(0))?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// `write --folder PATH --files N --mib N --mib-per-s N`: new files, as when an image is unpacked; synced at the end of each.
pub(crate) fn write(words: impl Iterator<Item = String>) -> Outcome {
    let words: Vec<String> = words.collect();
    let folder: String = flag(&words, "--folder").ok_or("--folder is missing")?;
    let files: usize = flag(&words, "--files").unwrap_or(4);
    let each: usize = flag(&words, "--mib").unwrap_or(64);
    let rate: f64 = flag(&words, "--mib-per-s").unwrap_or(40.0);
    fs::create_dir_all(&folder)?;
    let mut dice = Dice::new(11);
    let mut buffer = vec![0_u8; MIB];
    let began = Instant::now();
    for index in 0..files {
        let mut file = File::create(format!("{folder}/layer-{index}"))?;
        for done in 0..each {
            for page in buffer.chunks_mut(PAGE) {
                page[..8].copy_from_slice(&dice.roll().to_le_bytes());
            }
            file.write_all(&buffer)?;
            let due = Duration::from_secs_f64((index * each + done + 1) as f64 / rate);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        file.sync_all()?;
    }
    Ok(())
}
