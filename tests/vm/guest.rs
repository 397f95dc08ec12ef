//! A booted guest: systemd, the agent and its helper, the stand-in kubelet; it does what it is told over TCP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::archive::Archive;
use super::emulator::{Emulator, Parts};
use super::files;
use super::programs;
use super::support::boot::group_id_in;
use super::support::control_plane::ControlPlane;
use super::support::{enter, say, tools, wait_until};
use super::trace::Recording;

/// What a guest is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Has a disk of 512 MiB to swap to.
    pub(crate) swap_disk: bool,
    /// Has zram to swap to, so many hundredths of the memory.
    pub(crate) zram_percent: u32,
    /// What the kubelet's unit has for `OOMScoreAdjust=`.
    pub(crate) kubelet_oom_score_adjust: i32,
    /// The machine's memory.
    pub(crate) memory_mib: u32,
    /// Has the real kubelet and containerd, and no stand-in.
    pub(crate) real_kubelet: bool,
}

/// A running guest. It is gone when it is dropped.
pub(crate) struct Guest {
    pub(crate) name: String,
    pub(crate) plane: Arc<ControlPlane>,
    emulator: Emulator,
    setting: Setting,
    listener: TcpListener,
    address: String,
    conductor: Option<BufReader<TcpStream>>,
    asked: u64,
    /// Where its kernel was changed last.
    poked: Option<u64>,
    /// How long its boot took, until the agent's conditions were on its Node.
    pub(crate) boot: Duration,
}

/// What to add to a stamp of the guest's kernel log, in microseconds: it has a clock of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// For the guest's real time.
    pub(crate) guest_us: i64,
    /// For this machine's.
    pub(crate) host_us: i64,
    /// How long the answer took: the latter is exact to half of it.
    pub(crate) took: Duration,
}

/// The folder that `image.sh` made; `make` sets it.
const IMAGE: &str = "NODEVIGIL_VM";
/// The program of `tests/vm/guest`; `make` sets it.
const PROGRAM: &str = "NODEVIGIL_GUEST";
/// An emulated boot takes 20 to 30 seconds on an idle core.
const BOOT_TIMEOUT: Duration = Duration::from_secs(150);

fn variable(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os(name)
        .with_context(|| format!("{name} is not set: start this through make"))?;
    let path = PathBuf::from(path);
    ensure!(
        path.exists(),
        "{name}: {} is missing: start this through make",
        path.display()
    );
    Ok(path)
}

impl Guest {
    /// Boots one; returns when the agent's conditions are on its Node.
    pub(crate) fn boot(plane: &Arc<ControlPlane>, setting: Setting) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let began = Instant::now();
        let name = format!("guest-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let image = variable(IMAGE)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("listening for the guest")?;
        listener.set_nonblocking(true)?;
        let address = format!("{}:{}", enter::ADDRESS, listener.local_addr()?.port());
        let initial = enter::work().join("nodes").join(format!("{name}.cpio"));
        initial_files(plane, &name, &setting, &image, &address)?.write(&initial)?;
        create_node(plane, &name)?;
        let programs = setting
            .real_kubelet
            .then(|| programs::disk(&enter::work().join("nodes")))
            .transpose()?;
        let emulator = Emulator::start(&Parts {
            image: &image,
            initial: &initial,
            memory_mib: setting.memory_mib,
            swap_disk: setting.swap_disk,
            programs: programs.as_deref(),
            label: &name,
        })?;
        let mut guest = Self {
            name,
            plane: Arc::clone(plane),
            emulator,
            setting,
            listener,
            address,
            conductor: None,
            asked: 0,
            poked: None,
            boot: Duration::ZERO,
        };
        let up = guest.wait_up();
        let _ = std::fs::remove_file(&initial); // the emulator has read it
        up?;
        guest.boot = began.elapsed();
        say(&format!(
            "{}: up after {:.1} s",
            guest.name,
            guest.boot.as_secs_f64()
        ));
        Ok(guest)
    }

    fn wait_up(&mut self) -> Result<()> {
        let stream = self.accept("the guest's systemd to start our program", BOOT_TIMEOUT)?;
        self.conductor = Some(BufReader::new(stream));
        let (plane, name) = (Arc::clone(&self.plane), self.name.clone());
        let told = wait_until("the agent's conditions on the Node", BOOT_TIMEOUT, || {
            self.emulator.check()?;
            let told = plane.condition(&name, "KubeletHealthy")?;
            // The real one takes its time to start.
            Ok(told.filter(|told| !self.setting.real_kubelet || told["status"] == "True"))
        });
        if let Err(error) = told {
            let journal = self
                .run(
                    "systemctl --no-pager --failed; journalctl -n 40 --no-pager -o short-monotonic",
                )
                .unwrap_or_default();
            return Err(error.context(format!("{journal}\n{}", self.emulator.console())));
        }
        self.swap_on()
    }

    fn swap_on(&mut self) -> Result<()> {
        if self.setting.zram_percent > 0 {
            let size = self.setting.memory_mib * self.setting.zram_percent / 100;
            self.sh(&format!(
                "echo {size}M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0"
            ))?;
        }
        if self.setting.swap_disk {
            self.sh("swapon /dev/vdb")?;
        }
        Ok(())
    }

    fn accept(&mut self, what: &str, timeout: Duration) -> Result<TcpStream> {
        let Self {
            emulator, listener, ..
        } = self;
        let stream = wait_until(what, timeout, || {
            emulator.check()?;
            Ok(listener.accept().ok())
        });
        let (stream, _) = stream.with_context(|| emulator.console())?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Writes these bytes over the beginning of a function of its kernel, and returns what was there.
    pub(crate) fn poke(&mut self, function: &str, bytes: &[u8]) -> Result<Vec<u8>> {
        let told = self.sh(&format!(
            "sed -nE 's/^([0-9a-f]+) . ({function}|_text)$/\\2 \\1/p' /proc/kallsyms
             sed -nE 's/^ *([0-9a-f]+)-.*Kernel code$/code \\1/p' /proc/iomem"
        ))?;
        let place = |name: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(name));
            let place = line.with_context(|| format!("{name}: {told}"))?;
            Ok::<_, anyhow::Error>(u64::from_str_radix(place.trim(), 16)?)
        };
        let at = place(function)? - place("_text")? + place("code")?;
        self.poked = Some(at);
        self.emulator.poke(at, bytes)
    }

    /// Writes back what [`Self::poke`] returned. The guest need not answer for that.
    pub(crate) fn poke_again(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.poked.context("nothing was poked")?;
        self.emulator.poke(at, bytes).map(drop)
    }

    /// Resets it, as whoever repairs machines does; returns when its systemd has started our program.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.emulator.reset()?;
        self.conductor = None;
        let stream = self.accept("the guest after its reset", BOOT_TIMEOUT)?;
        self.conductor = Some(BufReader::new(stream));
        Ok(())
    }

    /// Runs a shell script in the guest that must succeed; returns its output.
    pub(crate) fn sh(&mut self, script: &str) -> Result<String> {
        let answer = self.ask(json!({"script": script}))?;
        let output = answer["output"].as_str().unwrap_or_default().to_owned();
        ensure!(answer["code"] == 0, "{}: `{script}`: {answer}", self.name);
        Ok(output)
    }

    /// Runs a shell script in the guest; returns its output, however it ended.
    pub(crate) fn run(&mut self, script: &str) -> Result<String> {
        Ok(self.ask(json!({"script": script}))?["output"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    fn ask(&mut self, mut request: Value) -> Result<Value> {
        self.asked += 1;
        request["id"] = self.asked.into();
        let conductor = self.conductor.as_mut().context("the guest is not up")?;
        // A starved guest answers late.
        conductor
            .get_ref()
            .set_read_timeout(Some(Duration::from_mins(1)))?;
        conductor
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut line = String::new();
            let read = conductor
                .read_line(&mut line)
                .with_context(|| format!("{}: waiting for an answer to {request}", self.name))?;
            if read == 0 {
                bail!(
                    "{}: the guest's program ended: {}",
                    self.name,
                    self.emulator.console()
                );
            }
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == request["id"] {
                return Ok(answer); // another one's came after nobody waited for it any more
            }
        }
    }

    /// How the clocks stand to each other; of several tries that which took the least time.
    pub(crate) fn clocks(&mut self) -> Result<Clocks> {
        let mut best: Option<Clocks> = None;
        for _ in 0..9 {
            let (sent, began) = (Timestamp::now().as_microsecond(), Instant::now());
            let told = self.ask(json!({"clocks": true}))?;
            let took = began.elapsed();
            let number = |name: &str| {
                let number = told[name].as_i64();
                number.with_context(|| format!("no {name} in {told}"))
            };
            let middle = sent + i64::try_from(took.as_micros() / 2)?;
            let guest_us = number("log_real_us")? - number("log_us")?;
            let host_us = middle - number("real_us")? + guest_us;
            if best.is_none_or(|best| took < best.took) {
                best = Some(Clocks {
                    guest_us,
                    host_us,
                    took,
                });
            }
        }
        best.context("no clock was read")
    }

    /// When the agent logged a line with these words last, by the guest's real time.
    pub(crate) fn logged_us(&mut self, words: &str) -> Result<Option<i64>> {
        let lines = self.run(&format!(
            "journalctl -u nodevigil -o json --no-pager | grep -F '{words}' | tail -n 1"
        ))?;
        let line: Value = serde_json::from_str(&lines).unwrap_or_default();
        let stamp = line["_SOURCE_REALTIME_TIMESTAMP"].as_str();
        Ok(stamp.and_then(|stamp| stamp.parse().ok()))
    }

    /// The end of the agent's journal and of the kernel's log, with the clocks of both, for an error message.
    pub(crate) fn log(&mut self) -> String {
        let script = "journalctl -n 25 --no-pager -o short-unix -u nodevigil -u kubelet; dmesg | grep -iE 'oom|killed' | tail -n 12";
        let log = self
            .run(script)
            .unwrap_or_else(|error| format!("{error:#}"));
        format!("{log}\n{:?}", self.clocks().ok())
    }

    /// The disks' speed, 0 for as fast as it goes.
    pub(crate) fn limit_disks(&mut self, per_second: u32) -> Result<()> {
        self.emulator
            .limit_disks(per_second, self.setting.swap_disk)
    }

    /// Starts to record.
    pub(crate) fn record(&mut self, seconds: u64, after_kill: u64) -> Result<Recording> {
        let script = format!(
            "systemd-run -q --collect --slice=lab.slice --unit=recorder -p OOMScoreAdjust=-1000 -p LimitMEMLOCK=infinity \
             /usr/bin/guest record --to {} --seconds {seconds} --after-kill {after_kill} --api-port {}",
            self.address,
            self.plane.port(),
        );
        self.sh(&script)?;
        let stream = self.accept("the recorder", Duration::from_secs(30))?;
        Recording::begin(stream)
    }
}

/// The Node that the kubelet would have registered.
fn create_node(plane: &ControlPlane, name: &str) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &node)?;
    ensure!(code == 201, "creating node {name}: {code}: {answer}");
    Ok(())
}

fn initial_files(
    plane: &ControlPlane,
    name: &str,
    setting: &Setting,
    image: &Path,
    address: &str,
) -> Result<Archive> {
    let mut archive = Archive::default();
    let program = variable(PROGRAM)?;
    archive.copy(&program, "init", 0o755)?;
    let order = std::fs::read_to_string(image.join("modules/order"))?;
    for module in order.lines().chain(["order"]) {
        archive.copy(
            &image.join("modules").join(module),
            &format!("modules/{module}"),
            0o644,
        )?;
    }
    archive.copy(&program, "files/usr/bin/guest", 0o755)?;
    archive.copy(&tools::agent()?, "files/usr/bin/nodevigil", 0o755)?;
    let kubelet = if setting.real_kubelet {
        programs::KUBELET
    } else {
        "guest"
    };
    archive.link("files/usr/bin/kubelet", kubelet);
    let groups = std::fs::read_to_string(image.join("group"))?;
    for file in files::all(plane, name, setting, address)? {
        let group = file
            .group
            .as_deref()
            .map_or(Ok(0), |group| group_id_in(&groups, group))?;
        archive.file(
            &format!("files{}", file.path),
            file.content.as_bytes(),
            file.mode,
            group,
        );
    }
    for unit in files::MASKED {
        archive.link(&format!("files/etc/systemd/system/{unit}"), "/dev/null");
    }
    Ok(archive)
}
