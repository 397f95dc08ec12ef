//! The live table of `nodevigil bootstrap`, on a real terminal of several widths: what stands on the screen in the end is worked
//! out from the bytes that came.

use anyhow::{Context as _, Result, bail, ensure};

use crate::scene::Scene;
use crate::support::say;

const STAGES: [&str; 11] = [
    "instance",
    "cloud-init",
    "runtime",
    "kubelet",
    "credential",
    "registered",
    "cloud-controller",
    "network",
    "volumes",
    "ready",
    "serving-certificate",
];

/// A screen without an upper end, as far as the table needs one. What it does not know is an error.
struct Screen {
    columns: usize,
    lines: Vec<String>,
    line: usize,
    column: usize,
    coloured: usize,
    erased: usize,
}

impl Screen {
    fn show(bytes: &str, columns: usize) -> Result<Self> {
        let mut screen = Self {
            columns,
            lines: vec![String::new()],
            line: 0,
            column: 0,
            coloured: 0,
            erased: 0,
        };
        let mut chars = bytes.chars();
        while let Some(c) = chars.next() {
            match c {
                '\x1b' => screen.sequence(&mut chars)?,
                '\r' => screen.column = 0,
                '\n' => screen.down(),
                c if c.is_control() => bail!("{c:?} on a terminal"),
                c => screen.put(c),
            }
        }
        Ok(screen)
    }

    fn sequence(&mut self, chars: &mut std::str::Chars<'_>) -> Result<()> {
        ensure!(chars.next() == Some('['), "a sequence that is no CSI");
        let mut numbers = String::new();
        let last = loop {
            match chars.next().context("a sequence that has no end")? {
                c if c.is_ascii_digit() || c == ';' => numbers.push(c),
                c => break c,
            }
        };
        match last {
            'm' => self.coloured += 1,
            'A' => {
                let up: usize = numbers.parse()?;
                ensure!(up <= self.line, "{up} up from line {}", self.line);
                self.line -= up;
            }
            'J' => {
                ensure!(
                    self.column == 0 && numbers.is_empty(),
                    "erased from the middle"
                );
                self.lines.truncate(self.line + 1);
                self.lines[self.line].clear();
                self.erased += 1;
            }
            other => bail!("CSI {numbers}{other}"),
        }
        Ok(())
    }

    fn down(&mut self) {
        self.line += 1;
        if self.line == self.lines.len() {
            self.lines.push(String::new());
        }
    }

    fn put(&mut self, c: char) {
        if self.column == self.columns {
            self.column = 0;
            self.down();
        }
        let line = &mut self.lines[self.line];
        let mut chars: Vec<char> = line.chars().collect();
        chars.resize(chars.len().max(self.column + 1), ' ');
        chars[self.column] = c;
        *line = chars.into_iter().collect();
        self.column += 1;
    }

    /// The rows of the table: each stage's word, if its name stands in the second column.
    fn rows(&self) -> Vec<(usize, &str, String)> {
        let row = |(at, line): (usize, &String)| {
            let name = line.get(8..)?.split_whitespace().next()?;
            let stage = STAGES.into_iter().find(|stage| *stage == name)?;
            line.starts_with("  ")
                .then(|| (at, stage, line[2..7].trim().to_owned()))
        };
        self.lines.iter().enumerate().filter_map(row).collect()
    }
}

/// Runs the command on a terminal of that width; what it wrote.
fn on_terminal(scene: &Scene, columns: usize, rows: usize, environment: &str) -> Result<String> {
    let (code, said) = scene.node.run(&format!(
        "script --quiet --return --command 'stty rows {rows} cols {columns}; exec env -u COLUMNS {environment} nodevigil bootstrap --deadline 7s' \
         /dev/null </dev/null"
    ))?;
    ensure!(code == 1, "{code}: {said}");
    Ok(said)
}

/// One table, each stage on a line of its own, and nothing of those before it; and what is to be said of a runtime that is down.
fn stands_whole(screen: &Screen, shown: &str) -> Result<()> {
    let rows = screen.rows();
    let names: Vec<_> = rows.iter().map(|(_, stage, _)| *stage).collect();
    ensure!(names == STAGES, "{names:?}\n{shown}");
    ensure!(
        rows.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0),
        "a line is broken:\n{shown}"
    );
    let word = |stage| {
        rows.iter()
            .find(|row| row.1 == stage)
            .map(|row| row.2.as_str())
    };
    ensure!(
        word("instance") == Some("done") && word("runtime") == Some("LATE"),
        "{shown}"
    );
    let text: String = screen.lines.concat();
    for words in [
        "runtime takes longer than 2 s",
        "half of 7 s have passed",
        "four fifths of 7 s have passed",
        "stuck at runtime",
        "probable cause runtime-unit: ",
        "not of use after 7 s",
    ] {
        ensure!(text.contains(words), "no {words:?}:\n{shown}");
    }
    Ok(())
}

/// A node whose runtime is down: the table stands at its row, and is drawn again and again.
pub(crate) fn a_table_is_drawn_over_itself() -> Result<()> {
    let fast = "[bootstrap]\nlook_every_secs = 1\nruntime_secs = 2\n";
    let change =
        |node: crate::support::node_builder::NodeBuilder| node.config("60-fast.toml", fast);
    let plane = crate::support::control_plane::ControlPlane::shared()?;
    Scene::booted(&plane, "terminal", change)?.play(|scene| {
        scene.node.sh("systemctl stop containerd")?;
        for (columns, environment) in [
            (100, "TERM=xterm"),
            (46, "TERM=xterm"),
            (30, "TERM=xterm NO_COLOR=1"),
        ] {
            let said = on_terminal(scene, columns, 40, environment)?;
            let screen = Screen::show(&said, columns).with_context(|| format!("{said:?}"))?;
            let shown = screen.lines.join("\n");
            say(&format!("{columns} columns, {environment}:\n{shown}"));
            ensure!(
                screen.erased >= 6,
                "drawn over {} times: {said:?}",
                screen.erased
            );
            stands_whole(&screen, &shown)?;
            ensure!(
                (screen.coloured == 0) == environment.contains("NO_COLOR"),
                "{said:?}"
            );
        }
        // Where it cannot be drawn over, nothing steers: lines.
        for (rows, environment) in [(40, "TERM=dumb"), (8, "TERM=xterm")] {
            let said = on_terminal(scene, 80, rows, environment)?;
            ensure!(
                !said.contains('\x1b') && said.contains("waits for runtime"),
                "{said:?}"
            );
        }
        let record = super::record(&scene.node)?;
        let stages = record["stages"].as_array().context("stages")?;
        let runtime = stages.iter().find(|row| row["stage"] == "runtime");
        ensure!(runtime.is_some_and(|row| row["late"] == true), "{record:#}");
        Ok(())
    })
}
