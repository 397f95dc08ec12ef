//! A guest: a node with a kernel, memory, cgroups and disks of its own, in an emulator.
//!
//! Its disk is a copy-on-write view of an image that tests/e2e/image.sh has made. The files of the node are on a second disk, as a tar,
//! and are unpacked at the first boot. A third one is for stories. Commands run by a shell at a virtio port, which needs neither the guest's network nor its bus.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::boot::{self, File};
use super::daemon::{log_file, tail};
use super::kinds::{Kind, USUAL_UNITS};
use super::namespaces::{self, ADDRESS};
use super::node_files::file;
use super::{output, wait_until};

/// A command on a guest takes no longer, so that none hangs a story.
const COMMAND: Duration = Duration::from_secs(200);

/// Runs commands at the same time; each answer is a line: number, exit code, output.
const SHELL: &str = r#"
exec <>/dev/$(basename "$(dirname "$(grep -lx e2e /sys/class/virtio-ports/*/name)")") >&0
while read -r id command; do
    {
        echo "$command" | base64 -d >/run/e2e-$id
        timeout --kill-after=5 190 /bin/sh /run/e2e-$id >/run/e2e-$id.out 2>&1 </dev/null
        code=$?
        flock /run/e2e-lock echo "$id $code $(base64 -w0 /run/e2e-$id.out)"
        rm /run/e2e-$id /run/e2e-$id.out
    } &
done
"#;
const SHELL_UNIT: &str = "\
[Unit]
DefaultDependencies=no
StartLimitIntervalSec=0
[Service]
Environment=PATH=/usr/local/e2e:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/bin/sh /etc/e2e-shell
OOMScoreAdjust=-1000
Restart=always
RestartSec=1
";

/// A running guest. It is gone when it is dropped.
#[derive(Debug)]
pub struct Guest {
    directory: PathBuf,
    emulator: Mutex<Child>,
    port: Mutex<Port>,
    answers: Arc<Answers>,
}

/// The host's side of the virtio port.
#[derive(Debug)]
struct Port {
    stream: UnixStream,
    last_id: u32,
}

/// Exit codes and outputs of commands, by their number.
#[derive(Debug, Default)]
struct Answers {
    all: Mutex<HashMap<u32, (i32, String)>>,
    arrived: Condvar,
}

impl Guest {
    /// Boots one with these files and layers; returns when its shell answers. `label` is unique in the run.
    pub fn boot(kind: &Kind, label: &str, layers: &[PathBuf], mut files: Vec<File>) -> Result<Self> {
        let directory = namespaces::work().join("nodes").join(label);
        let root = directory.join("root");
        let wants = "[Unit]\nWants=e2e-shell.service\n";
        files.extend([
            file("/etc/e2e-shell", SHELL, 0o644),
            file("/etc/systemd/system/e2e-shell.service", SHELL_UNIT, 0o644),
            file("/etc/systemd/system/sysinit.target.d/50-e2e.conf", wants, 0o644),
        ]);
        files.extend(
            ["systemctl", "journalctl"]
                .map(|program| file(&format!("/usr/local/e2e/{program}"), kind.wrapper(program), 0o755)),
        );
        for file in &files {
            boot::write(&root, file)?;
        }
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(directory.join("files"));
        for layer in layers.iter().chain([&root]) {
            tar.arg("-C").arg(layer).arg(".");
        }
        output(&mut tar).context("packing the guest's files")?;
        fs::File::create(directory.join("empty"))?.set_len(64 << 20)?;
        let emulator = Mutex::new(emulate(kind, &directory)?);
        let stream = connect(&directory.join("shell"))?;
        let answers = Arc::new(Answers::default());
        let (into, from) = (Arc::clone(&answers), stream.try_clone()?);
        std::thread::spawn(move || into.read(from));
        let guest = Self { directory, emulator, port: Mutex::new(Port { stream, last_id: 0 }), answers };
        guest.wait_up().with_context(|| guest.console())?;
        Ok(guest)
    }

    /// The ID of its boot; fails soon if it does not answer, as while it reboots.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.ask("cat /proc/sys/kernel/random/boot_id", Duration::from_secs(10))?.1)
    }

    /// Waits until its shell answers.
    fn wait_up(&self) -> Result<()> {
        wait_until("the guest's shell", Duration::from_mins(1), || {
            if let Some(status) = lock(&self.emulator).try_wait()? {
                bail!("the emulator ended ({status})");
            }
            Ok(self.ask("true", Duration::from_secs(5)).ok().map(drop))
        })
    }

    /// Runs a shell command on it: exit code and output (both streams).
    pub fn run(&self, command: &str) -> Result<(i32, String)> {
        self.ask(command, COMMAND)
    }

    fn ask(&self, command: &str, timeout: Duration) -> Result<(i32, String)> {
        let id = {
            let mut port = lock(&self.port);
            port.last_id += 1;
            let line = format!("{} {}\n", port.last_id, BASE64.encode(command));
            port.stream.write_all(line.as_bytes()).context("writing to the guest's shell")?;
            port.last_id
        };
        self.answers.wait(id, timeout).with_context(|| format!("no answer to `{command}` in {} s", timeout.as_secs()))
    }

    /// Gives the emulator's monitor a command, such as `stop` and `cont`; returns when it was carried out.
    pub fn monitor(&self, command: &str) -> Result<()> {
        let mut stream = connect(&self.directory.join("monitor"))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        writeln!(stream, "{command}").context("writing to the emulator's monitor")?;
        // It prompts at first and after each command, and forgets a command whose connection is closed.
        let mut answer = String::new();
        while answer.matches("(qemu)").count() < 2 {
            let mut part = [0; 4096];
            let length = stream.read(&mut part).with_context(|| format!("the monitor's answer to {command}"))?;
            ensure!(length > 0, "the monitor has closed: {answer}");
            answer += &String::from_utf8_lossy(&part[..length]);
        }
        ensure!(!answer.contains("Error") && !answer.contains("unknown command"), "{answer}");
        Ok(())
    }

    /// Sends the emulator a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(lock(&self.emulator).id())?), signal)?)
    }

    /// The end of what its console shows.
    pub fn console(&self) -> String {
        tail(&self.directory.join("console"))
    }

    /// Ends it as a power cut would.
    pub fn end(&self) {
        let mut emulator = lock(&self.emulator);
        let _ = emulator.kill(); // it may have ended
        let _ = emulator.wait();
        let _ = fs::remove_dir_all(&self.directory); // it is in memory
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

impl Answers {
    fn read(&self, stream: UnixStream) {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let mut number = || words.next()?.parse::<u32>().ok();
            let (Some(id), Some(code)) = (number(), number()) else { continue };
            let text = BASE64.decode(words.next().unwrap_or_default()).unwrap_or_default();
            let answer = (i32::try_from(code).unwrap_or(-1), String::from_utf8_lossy(&text).into_owned());
            lock(&self.all).insert(id, answer);
            self.arrived.notify_all();
        }
    }

    fn wait(&self, id: u32, timeout: Duration) -> Option<(i32, String)> {
        let (mut all, end) = (lock(&self.all), Instant::now() + timeout);
        loop {
            if let Some(answer) = all.remove(&id) {
                return Some(answer);
            }
            let left = end.checked_duration_since(Instant::now())?;
            all = self.arrived.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(socket: &Path) -> Result<UnixStream> {
    let name = socket.display().to_string();
    wait_until(&name, Duration::from_secs(20), || Ok(UnixStream::connect(socket).ok()))
}

/// Starts the emulator. The guest reaches the run's loopback by the address that nodes have for the API server.
fn emulate(kind: &Kind, directory: &Path) -> Result<Child> {
    let image = kind.image()?;
    let (console, errors) = log_file(&directory.join("console"))?;
    let image = |name: &str| image.join(name).display().to_string();
    let socket = |name: &str| format!("socket,id={name},path={},server=on,wait=off", directory.join(name).display());
    let (mut emulator, terminal) = machine(kind, directory);
    // The unit of Debian's package, where that of the kind has another name.
    let mask = if kind.units == USUAL_UNITS { "" } else { "systemd.mask=containerd.service" };
    emulator
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-smp", "2", "-m", "1536"])
        // No KVM: not every machine has it.
        // One thread: with a thread for each processor, one may still run code that the other has just patched, and the kernel panics.
        .args(["-accel", "tcg,thread=single"])
        .args(["-kernel", &image("kernel"), "-initrd", &image("initial")])
        .args(["-append", &format!("console={terminal} quiet panic=10 mitigations=off systemd.show_status=0 {mask}")])
        .args(["-drive", &format!("file={},format=raw,if=virtio,cache=unsafe,snapshot=on", image("disk"))])
        .args(["-drive", &format!("file={},format=raw,if=virtio,readonly=on", directory.join("files").display())])
        .args(["-drive", &format!("file={},format=raw,if=virtio,cache=unsafe", directory.join("empty").display())])
        .args(["-netdev", &format!("user,id=net,net=10.99.0.0/24,host={ADDRESS}")])
        .args(["-device", "virtio-net-pci,netdev=net", "-device", "virtio-serial-pci"])
        .args(["-chardev", &socket("shell"), "-device", "virtserialport,chardev=shell,name=e2e"])
        .args(["-chardev", &socket("monitor"), "-mon", "chardev=monitor,mode=readline"])
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors)
        .spawn()
        .context("starting QEMU")
}

/// The emulator of a machine of that architecture, and what Linux calls its serial port.
fn machine(kind: &Kind, directory: &Path) -> (Command, &'static str) {
    let mut emulator = Command::new("nice");
    emulator.args(["-n", "10"]);
    if kind.architecture == "arm64" {
        emulator.args(["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"]);
        return (emulator, "ttyAMA0");
    }
    // What firmware keeps over a panic (ACPI ERST), which the kernel shows as /sys/fs/pstore.
    let erst = directory.join("erst");
    emulator
        // Debian 12's QEMU crashes when it emulates later processors.
        .args(["qemu-system-x86_64", "-cpu", "Nehalem-v1"])
        .args(["-object", &format!("memory-backend-file,id=erst,size=64K,share=on,mem-path={}", erst.display())])
        .args(["-device", "acpi-erst,memdev=erst"]);
    (emulator, "ttyS0")
}
