//! The stand-in for the kubelet, for all loads but one: it starts in a third of the time that the real one takes under emulation.
//! It has its size (60 MiB of anonymous memory, 100 MiB of program text that it runs all over ten times a second), its name, its
//! `/healthz`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::Outcome;
use crate::place::Dice;

const PAGE: usize = 4096;
const ANON_MIB: usize = 60;
/// The pages of each kind that a turn touches.
const TOUCHED: usize = 100;
const TURN: Duration = Duration::from_millis(100);
/// A turn that takes longer is a stall; their number is in this file, for the recorder.
const STALL: Duration = Duration::from_millis(500);
/// The number of stalls so far.
pub(crate) const STALLS: &str = "/run/kubelet-stalls";
/// What it executes, in a file.
const TEXT: &str = "/usr/lib/kubelet-text";

/// Runs for good. It is called as the kubelet is, and takes no notice of the arguments.
pub(crate) fn run(_: impl Iterator<Item = String>) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:10248")?;
    std::thread::spawn(move || healthz(&listener));
    let text = Text::map()?;
    let mut anon = vec![0_u8; ANON_MIB << 20];
    anon.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let mut seen = (0..text.pages).fold(0_u64, |sum, page| sum + u64::from(text.touch(page)));
    let stalls = File::create(STALLS)?;
    let mut dice = Dice::new(3);
    let mut count = 0_u32;
    loop {
        let began = Instant::now();
        for _ in 0..TOUCHED {
            seen += u64::from(text.touch(dice.below(text.pages)));
            let page = dice.below(ANON_MIB << 8) * PAGE;
            anon[page] = anon[page].wrapping_add(1);
        }
        std::hint::black_box(seen);
        std::thread::sleep(TURN);
        if began.elapsed() > STALL {
            count += 1;
            std::os::unix::fs::FileExt::write_at(&stalls, count.to_string().as_bytes(), 0)?;
        }
    }
}

fn healthz(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        // One connection may ask many times.
        std::thread::spawn(move || {
            let mut request = [0_u8; 1024];
            while let Ok(1..) = stream.read(&mut request) {
                let answer =
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

/// A file mapped as a program's text is.
struct Text {
    at: *const u8,
    pages: usize,
}

impl Text {
    fn map() -> Result<Self, Box<dyn std::error::Error>> {
        let file = File::open(TEXT)?;
        let length = usize::try_from(fs::metadata(TEXT)?.len())?;
        // SAFETY: a private mapping at a place of the kernel's choice; nobody writes the file.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE,
                &file,
                0,
            )
        }?;
        Ok(Self {
            at: at.cast(),
            pages: length / PAGE,
        })
    }

    fn touch(&self, page: usize) -> u8 {
        assert!(page < self.pages, "a page of the text");
        // SAFETY: within the mapping, which is never undone.
        unsafe { self.at.add(page * PAGE).read_volatile() }
    }
}
