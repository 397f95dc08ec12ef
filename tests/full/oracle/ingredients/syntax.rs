//! The syntax of unit files: sections, keys, comments, continuation, encodings.

use super::{Add, Ingredient};
use crate::case::Entry;
use crate::draft::Draft;

const fn drop_in(name: &'static str, content: &'static [u8]) -> Ingredient {
    (name, Add::DropIn(content))
}

const fn change(name: &'static str, change: fn(&mut Draft)) -> Ingredient {
    (name, Add::Change(change))
}

pub(super) const DROP_INS: &[Ingredient] = &[
    drop_in("before the first section", b"Environment=A=1\n[Service]\nEnvironment=B=2\n"),
    drop_in("no section", b"Environment=A=1\n"),
    drop_in("an unknown section", b"[service]\nEnvironment=A=1\n[Service]\nEnvironment=B=2\n"),
    drop_in("a section of one's own", b"[X-Kubelet]\nEnvironment=A=1\n[Service]\nEnvironment=B=2\n"),
    drop_in("an unknown key", b"[Service]\nEnviroment=A=1\nenvironment=B=2\nX-A=3\nEnvironment=C=4\n"),
    drop_in("the wrong section", b"[Unit]\nEnvironment=A=1\nExecStart=\n[Service]\nEnvironment=B=2\n"),
    drop_in("a section twice", b"[Service]\nEnvironment=A=1\n[Unit]\nDescription=x\n[Service]\nEnvironment=A=2\n"),
    drop_in("an open header", b"[Service]\nEnvironment=A=1\n[Service\nEnvironment=B=2\n"),
    drop_in("an open header first", b"[Service\nEnvironment=B=2\n"),
    drop_in("a header with text behind it", b"[Service] x\nEnvironment=B=2\n"),
    drop_in("a header with a comment behind it", b"[Service] # x\nEnvironment=B=2\n"),
    drop_in("a header with blanks", b"  [Service]  \nEnvironment=B=2\n"),
    drop_in("a header with inner blanks", b"[ Service ]\nEnvironment=B=2\n"),
    drop_in("an empty header", b"[]\nEnvironment=A=1\n[Service]\nEnvironment=B=2\n"),
    drop_in("a header that is continued", b"[Service\\\n]\nEnvironment=A=1\n"),
    drop_in("a header with brackets", b"[[Service]]\nEnvironment=A=1\n[Service]\nEnvironment=B=2\n"),
    drop_in("a line that is nothing", b"[Service]\nEnvironment=A=1\nKUBELET\nEnvironment=B=2\n"),
    drop_in("a key without a name", b"[Service]\n=x\nEnvironment=B=2\n"),
    drop_in("blanks before and behind keys", b"[Service]\n   Environment  =   A=1  \n\tEnvironment\t=\tB=2\t\n"),
    drop_in("comments", b"# a\n; b\n[Service]\n  # Environment=A=1\n\t;Environment=B=1\nEnvironment=C=1\n"),
    drop_in("a comment that is continued", b"[Service]\n# a \\\nEnvironment=A=1\nEnvironment=B=1\n"),
    drop_in(
        "a comment within a continuation",
        b"[Service]\nEnvironment=A=1 \\\n# B=2 \\\n; C=3\n  D=4\nEnvironment=E=5\n",
    ),
    drop_in("a comment of spaces within a continuation", b"[Service]\nEnvironment=A=1 \\\n   # B=2\n   C=3\n"),
    drop_in("a continuation that an empty line ends", b"[Service]\nEnvironment=A=1 \\\n\nEnvironment=B=2\n"),
    drop_in("a continuation that blanks end", b"[Service]\nEnvironment=A=1 \\\n   \nEnvironment=B=2\n"),
    drop_in("a continuation at the end", b"[Service]\nEnvironment=A=1 \\\n"),
    drop_in("a continuation at the very end", b"[Service]\nEnvironment=A=1 \\"),
    drop_in("a continuation and a comment at the end", b"[Service]\nEnvironment=A=1 \\\n# x"),
    drop_in("a continued key", b"[Service]\nEnviron\\\nment=A=1\nEnvironment=B=2\n"),
    drop_in("a continued key, blank", b"[Service]\nEnvironment \\\n = A=1\n"),
    drop_in("a continued empty value", b"[Service]\nEnvironment= \\\n  A=1 \\\n  B=2\n"),
    drop_in("a reset that is continued", b"[Service]\nEnvironment=\\\n\nEnvironment=B=2\n"),
    drop_in("backslash and blank", b"[Service]\nEnvironment=A=1 \\ \nEnvironment=B=2\n"),
    drop_in("two backslashes", b"[Service]\nEnvironment=A=1\\\\\nEnvironment=B=2\n"),
    drop_in("three backslashes", b"[Service]\nEnvironment=A=1\\\\\\\nB=2\nEnvironment=C=3\n"),
    drop_in("a continuation into a header", b"[Service]\nEnvironment=A=1 \\\n[Service]\nEnvironment=B=2\n"),
    drop_in("many continuations", b"[Service]\nEnvironment=\\\nA=1\\\n B=2\\\n\tC=3\\\n\\\nD=4\n"),
    drop_in("no newline at the end", b"[Service]\nEnvironment=A=1"),
    drop_in("CRLF", b"[Service]\r\nEnvironment=A=1\r\nEnvironment=\"B=2 3\"\r\n"),
    drop_in("CRLF, continued", b"[Service]\r\nEnvironment=A=1 \\\r\n  B=2\r\nEnvironment=C=3\r\n"),
    drop_in("a byte order mark", b"\xef\xbb\xbf[Service]\nEnvironment=A=1\n"),
    drop_in("a byte order mark twice", b"\xef\xbb\xbf\xef\xbb\xbf[Service]\nEnvironment=A=1\n"),
    drop_in("a byte order mark in the middle", b"[Service]\n\xef\xbb\xbfEnvironment=A=1\nEnvironment=B=2\n"),
    drop_in("a lone CR", b"[Service]\rEnvironment=A=1\rEnvironment=B=2\n"),
    drop_in("LF CR", b"[Service]\n\rEnvironment=A=1\n\rEnvironment=B=2\n"),
    drop_in("CR CR LF", b"[Service]\r\r\nEnvironment=A=1 \\\r\r\nB=2\r\r\n"),
    drop_in("a NUL", b"[Service]\nEnvironment=A=1\0B=2\nEnvironment=C=3\n"),
    drop_in("a NUL at a line's end", b"[Service]\nEnvironment=A=1\0\nEnvironment=C=3 \\\0D=4\n"),
    drop_in("not UTF-8", b"[Service]\nEnvironment=A=1\nEnvironment=B=\xff\nEnvironment=C=3\n"),
    drop_in("not UTF-8 in a comment", b"[Service]\n# gr\xfc\xdfe\nEnvironment=A=1\n"),
    drop_in("not UTF-8 in a key", b"[Service]\nEnvironm\xffent=A=1\nEnvironment=B=1\n"),
    drop_in("not UTF-8 in a header", b"[Serv\xffice]\nEnvironment=A=1\n[Service]\nEnvironment=B=1\n"),
    drop_in("not UTF-8 in a continuation", b"[Service]\nEnvironment=A=1 \\\n B=\xff\nEnvironment=C=1\n"),
    drop_in("not UTF-8 in an unknown section", b"[X-A]\nB=\xff\n[Service]\nEnvironment=C=1\n"),
    drop_in("UTF-16", b"\xff\xfe[\0S\0]\0\n\0"),
    drop_in("not ASCII", "[Service]\nEnvironment=A=ü\n# ☃\nEnvironment=B=☃\n".as_bytes()),
    drop_in("a vertical tab and a form feed", b"[Service]\n\x0bEnvironment=A=1\x0c\n\x0c\nEnvironment=B=\x0b2\n"),
    drop_in("a no-break space before a key", b"[Service]\n\xc2\xa0Environment=A=1\nEnvironment=B=2\n"),
    drop_in("only comments", b"# nothing\n"),
    drop_in("only a header", b"[Service]\n"),
    drop_in("other sections only", b"[Unit]\nDescription=x\n[Install]\nAlias=x.service\n"),
    drop_in("an include", b".include /etc/os-release\n[Service]\nEnvironment=A=1\n"),
    drop_in(
        "resets of everything",
        b"[Service]\nEnvironment=\nEnvironmentFile=\nUnsetEnvironment=\nPassEnvironment=\n",
    ),
    drop_in("a heredoc that was not meant", b"cat <<EOF\n[Service]\nEnvironment=A=1\nEOF\n"),
    drop_in("a quoted value", b"[Service]\n\"Environment=A=1\"\nEnvironment=B=2\n"),
    drop_in("TOML", b"[Service]\nEnvironment = \"<V>=<F>\"\n"),
    drop_in("YAML", b"Service:\n  Environment: A=1\n"),
    change("a unit file with CRLF", |draft| {
        unit_file(draft, |_, content| replace(content, b"\n", b"\r\n"));
    }),
    change("a unit file with a byte order mark", |draft| {
        unit_file(draft, |_, content| [b"\xef\xbb\xbf", content].concat());
    }),
    change("a unit file without its last newline", |draft| {
        unit_file(draft, |_, content| content.strip_suffix(b"\n").unwrap_or(content).to_vec());
    }),
    change("a unit file with tabs and blanks at line ends", |draft| {
        unit_file(draft, |_, content| replace(content, b"\n", b" \t\n"));
    }),
    change("a unit file with blank lines between", |draft| {
        unit_file(draft, |_, content| replace(content, b"\n", b"\n\n"));
    }),
    change("a unit file with a line that is not UTF-8", |draft| {
        unit_file(draft, |random, content| insert_line(random, content, b"Environment=X=\xe4"));
    }),
    change("a unit file with a comment that is not UTF-8", |draft| {
        unit_file(draft, |random, content| insert_line(random, content, b"# \xe4"));
    }),
    change("a unit file with a line that is nothing", |draft| {
        unit_file(draft, |random, content| insert_line(random, content, b"no sense"));
    }),
    change("a unit file with an open header", |draft| {
        unit_file(draft, |random, content| insert_line(random, content, b"[Service"));
    }),
    change("a unit file with another section in between", |draft| {
        unit_file(draft, |random, content| insert_line(random, content, b"[Unit]"));
    }),
    change("a unit file with a NUL", |draft| {
        unit_file(draft, |random, content| insert(random, content, b"\0"));
    }),
    change("a unit file with a backslash too many", |draft| {
        unit_file(draft, |random, content| {
            let content = insert_line(random, content, b"\\");
            replace(&content, b"\n\\\n", b"\\\n")
        });
    }),
    change("an environment file with CRLF", |draft| {
        env_file(draft, |_, content| replace(content, b"\n", b"\r\n"));
    }),
    change("an environment file with a byte order mark", |draft| {
        env_file(draft, |_, content| [b"\xef\xbb\xbf", content].concat());
    }),
    change("an environment file with a stray quote", |draft| {
        env_file(draft, |random, content| insert(random, content, b"\""));
    }),
    change("an environment file with a stray backslash", |draft| {
        env_file(draft, |random, content| insert(random, content, b"\\"));
    }),
    change("an environment file with a stray byte", |draft| {
        env_file(draft, |random, content| insert(random, content, b"\xff"));
    }),
    change("an environment file with a line joined to the next", |draft| {
        env_file(draft, |_, content| replace(content, b"\n", b"\\\n"));
    }),
];

type Edit = fn(&mut fastrand::Rng, &[u8]) -> Vec<u8>;

fn unit_file(draft: &mut Draft, edit: Edit) {
    edit_file(draft, edit, |draft, path| {
        path.contains("/systemd/") && path.contains(&draft.stem) && !path.ends_with(".env")
    });
}

fn env_file(draft: &mut Draft, edit: Edit) {
    edit_file(draft, edit, |draft, path| draft.env_files.iter().any(|file| file == path));
}

fn edit_file(draft: &mut Draft, edit: Edit, wanted: fn(&Draft, &str) -> bool) {
    let all: Vec<(String, Vec<u8>)> = draft
        .entries
        .iter()
        .filter(|(path, _)| wanted(draft, path))
        .filter_map(|(path, entry)| Some((path.clone(), entry.content()?)))
        .collect();
    if let Some((path, content)) = draft.random.choice(&all) {
        let content = edit(&mut draft.random.clone(), content);
        draft.entries.insert(path.clone(), Entry::file(content));
    }
}

fn replace(content: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::new();
    let mut rest = content;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(from) {
            result.extend(to);
            rest = after;
        } else {
            result.push(*first);
            rest = after;
        }
    }
    result
}

fn insert_line(random: &mut fastrand::Rng, content: &[u8], line: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    lines.insert(random.usize(..=lines.len()), line);
    lines.join(&b'\n')
}

fn insert(random: &mut fastrand::Rng, content: &[u8], what: &[u8]) -> Vec<u8> {
    let (before, after) = content.split_at(random.usize(..=content.len()));
    [before, what, after].concat()
}
