//! What the guest's recorder sends while a load runs, kept as a trace in the format of docs/reference/memory-trace.md.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// A line of the guest's kernel log about a kill.
#[derive(Clone, Debug)]
pub(crate) struct KernelLine {
    /// Its stamp, by the clock of the guest's log.
    pub(crate) stamp_us: i64,
    /// What it says.
    pub(crate) text: String,
}

impl KernelLine {
    /// A process was killed, in a limit or by the whole host.
    pub(crate) fn is_kill(&self) -> bool {
        self.text.contains("Killed process")
    }

    /// The host itself ran out of memory.
    pub(crate) fn is_global_kill(&self) -> bool {
        self.is_kill() && self.text.starts_with("Out of memory")
    }

    /// The name of the process that was killed.
    pub(crate) fn victim(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once('(')?;
        Some(rest.split_once(')')?.0)
    }
}

/// Something that the guest sent to the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// When it left, by the guest's real time.
    pub(crate) at_us: i64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct Store {
    samples: Vec<String>,
    kernel: Vec<KernelLine>,
    sent: Vec<Sent>,
    total_mib: u64,
    ended: Option<String>,
}

/// A recording that goes on.
pub(crate) struct Recording {
    store: Arc<(Mutex<Store>, Condvar)>,
}

/// A recording that has ended.
#[derive(Debug)]
pub(crate) struct Trace {
    /// `MemTotal`.
    pub(crate) total_mib: u64,
    /// The lines of the trace.
    pub(crate) samples: Vec<String>,
    /// What the kernel said of kills.
    pub(crate) kernel: Vec<KernelLine>,
    /// What was sent to the API server, in order.
    pub(crate) sent: Vec<Sent>,
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    /// Reads what the recorder sends, until it ends.
    pub(crate) fn begin(stream: TcpStream) -> Result<Self> {
        // A guest that thrashes may fall silent for seconds.
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        let store = Arc::new((Mutex::new(Store::default()), Condvar::new()));
        let into = Arc::clone(&store);
        std::thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || {
                let outcome = read(BufReader::new(stream), &into.0, &into.1);
                lock(&into.0).ended = Some(
                    outcome
                        .err()
                        .map_or(String::new(), |error| format!("{error:#}")),
                );
                into.1.notify_all();
            })?;
        Ok(Self { store })
    }

    /// Waits for its end.
    pub(crate) fn finish(self, timeout: Duration) -> Result<Trace> {
        let end = Instant::now() + timeout;
        let mut store = lock(&self.store.0);
        while store.ended.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(
                    "the recorder did not end in {timeout:?}; {} samples so far",
                    store.samples.len()
                );
            }
            store = self
                .store
                .1
                .wait_timeout(store, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        match store.ended.as_deref() {
            Some("") => {}
            other => bail!(
                "the recorder: {other:?}; {} samples so far",
                store.samples.len()
            ),
        }
        Ok(Trace {
            total_mib: store.total_mib,
            samples: std::mem::take(&mut store.samples),
            kernel: std::mem::take(&mut store.kernel),
            sent: std::mem::take(&mut store.sent),
        })
    }
}

fn read(lines: BufReader<TcpStream>, store: &Mutex<Store>, changed: &Condvar) -> Result<()> {
    for line in lines.lines() {
        let line = line?;
        let value: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        if value.get("end").is_some() {
            return Ok(());
        }
        let mut store = lock(store);
        if let Some(total) = value["total_mib"].as_u64() {
            store.total_mib = total;
        } else if let (Some(stamp_us), Some(text)) =
            (value["stamp_us"].as_i64(), value["kernel"].as_str())
        {
            store.kernel.push(KernelLine {
                stamp_us,
                text: text.to_owned(),
            });
            changed.notify_all();
        } else if let (Some(at_us), Some(bytes)) =
            (value["sent_us"].as_i64(), value["bytes"].as_u64())
        {
            store.sent.push(Sent { at_us, bytes });
        } else {
            store.samples.push(line);
        }
    }
    bail!("the guest ended the connection")
}

impl Trace {
    /// When the host itself ran out of memory first, by the clock of the guest's log.
    pub(crate) fn global_kill_us(&self) -> Option<i64> {
        self.kernel
            .iter()
            .find(|line| line.is_global_kill())
            .map(|line| line.stamp_us)
    }

    /// A number of every sample, with its time; a sample without it is left out.
    pub(crate) fn column(&self, name: &str) -> Vec<(f64, f64)> {
        let samples = self
            .samples
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        samples
            .filter_map(|sample| Some((sample["t_s"].as_f64()?, sample[name].as_f64()?)))
            .collect()
    }

    /// Writes it as a file: the head, then a sample a line.
    pub(crate) fn write(&self, to: &Path, name: &str, what: &str, swap: &str) -> Result<()> {
        let seconds = |us: i64| Value::from(us / 1000).as_f64().map(|ms| ms / 1000.0);
        let head = json!({
            "trace": name, "what": what, "total_mib": self.total_mib, "swap": swap,
            "oom_kill_at_s": self.global_kill_us().and_then(seconds),
        });
        let mut text = format!("{head}\n");
        for sample in &self.samples {
            text.push_str(sample);
            text.push('\n');
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(to, text).with_context(|| format!("writing {}", to.display()))
    }
}
