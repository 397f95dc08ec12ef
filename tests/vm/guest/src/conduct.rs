//! Does in the guest what the test asks for, one line of JSON a request and one an answer, which carries the request's `id`:
//! runs a shell script, tells the clocks.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::{Outcome, place};

/// `conduct ADDRESS`: until the test ends the connection.
pub(crate) fn run(mut words: impl Iterator<Item = String>) -> Outcome {
    let address = words.next().ok_or("conduct ADDRESS")?;
    let began = Instant::now();
    let stream = loop {
        match TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(why) if began.elapsed() > Duration::from_secs(30) => {
                return Err(format!("{address}: {why}").into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    stream.set_nodelay(true)?;
    place::lock_pages()?;
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let mut answer = match request["script"].as_str() {
            Some(script) => script_done(script),
            None => clocks().unwrap_or_else(|why| json!({"error": why.to_string()})),
        };
        answer["id"] = request["id"].clone();
        answers.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

fn script_done(script: &str) -> Value {
    let done = Command::new("/bin/sh")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .stdin(Stdio::null())
        .output();
    match done {
        Ok(done) => json!({
            "code": done.status.code(),
            "output": String::from_utf8_lossy(&done.stdout),
        }),
        Err(why) => json!({"error": why.to_string()}),
    }
}

/// The real time and the kernel log's own, as of one moment: the log has a clock of its own.
fn clocks() -> Result<Value, Box<dyn std::error::Error>> {
    let mut kmsg = OpenOptions::new()
        .read(true)
        .custom_flags(0o4000)
        .open("/dev/kmsg")?; // O_NONBLOCK
    let mut record = [0_u8; 8192];
    let exhausted = |kmsg: &mut File, record: &mut [u8]| {
        kmsg.read(record)
            .is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock)
    };
    while !exhausted(&mut kmsg, &mut record) {}
    let mut log = OpenOptions::new().write(true).open("/dev/kmsg")?;
    let before = micros(ClockId::Realtime);
    log.write_all(b"<7>guest: clocks\n")?;
    let after = micros(ClockId::Realtime);
    let monotonic = micros(ClockId::Monotonic);
    loop {
        let length = kmsg.read(&mut record)?;
        let text = String::from_utf8_lossy(&record[..length]);
        if text.contains("guest: clocks") {
            let stamp: i64 = text
                .split(',')
                .nth(2)
                .ok_or("a record without a stamp")?
                .parse()?;
            return Ok(
                json!({"real_us": after, "log_us": stamp, "log_real_us": (before + after) / 2, "monotonic_us": monotonic}),
            );
        }
    }
}

fn micros(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}
