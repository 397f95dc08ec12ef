//! `Environment=`, `PassEnvironment=`, `UnsetEnvironment=` and `EnvironmentFile=` lines.

use super::{Add, Ingredient};

const fn lines(name: &'static str, lines: &'static str) -> Ingredient {
    (name, Add::Lines(lines))
}

pub(super) const LINES: &[Ingredient] = &[
    lines(
        "two assignments in a line",
        "Environment=<V>=--v=1 <V>=--v=2",
    ),
    lines("quoted whole", "Environment=\"<V>=<F> <F>\""),
    lines("single quotes", "Environment='<V>=<F> <F>'"),
    lines("only the value quoted", "Environment=<V>=\"<F> <F>\""),
    lines(
        "a second word that is no assignment",
        "Environment=<V>=--cloud-provider=external --v=2",
    ),
    lines(
        "an assignment after a lost word",
        "Environment=<V>=--a --b <V>=--c",
    ),
    lines(
        "JSON with inner quotes",
        "Environment=\"<V>=--x={\"a\":\"b c\"}\" A=1",
    ),
    lines(
        "JSON in single quotes",
        "Environment='<V>=--x={\"a\": \"b\"}'",
    ),
    lines("blanks around the equals sign", "Environment=<V> = 1"),
    lines("typographic quotes", "Environment=“<V>=<F> <F>”"),
    lines(
        "variables stay as they are",
        "Environment=\"<V>=$<V> ${<V>} $$\"",
    ),
    lines(
        "specifiers of the unit's name",
        "Environment=\"<V>=%n %N %p %P\" \"A=%i|%I|%j|%J|%f\"",
    ),
    lines(
        "specifiers of the machine",
        "Environment=\"<V>=%H %l %m %b %%\"",
    ),
    lines(
        "specifiers of folders",
        "Environment=\"<V>=%t %S %C %L %E %T %V %h %s\"",
    ),
    lines("specifiers of the user", "Environment=\"<V>=%u %U %g %G\""),
    lines(
        "specifiers of the system",
        "Environment=\"<V>=%o %w %W %B %A %M\"",
    ),
    lines("specifiers of the fragment", "Environment=\"<V>=%y %Y\""),
    lines("a specifier that is none", "Environment=<V>=100%5 A=1"),
    lines("an unknown letter", "Environment=A=1 \"<V>=%k x\" B=2"),
    lines(
        "percent signs that stay",
        "Environment=\"<V>=50%, 100% \" A=100%",
    ),
    lines("percent and quote", "Environment=\"<V>=%\" 'A=%'"),
    lines("doubled percent", "Environment=<V>=%%n%%%%n"),
    lines(
        "escapes",
        r#"Environment="<V>=a\tb\x41\101\u00e9\U0001f600\s" A=\x42"#,
    ),
    lines("an escaped newline", r#"Environment="<V>=--a\n--b""#),
    lines(
        "control characters by escape",
        r#"Environment="<V>=a\x01b" "A=a\x7fb" "B=\r""#,
    ),
    lines("an unknown escape", r"Environment=A=1 <V>=a\qb B=2"),
    lines("an incomplete escape", r"Environment=A=1 <V>=a\x4 B=2"),
    lines("an escape of nought", r"Environment=A=1 <V>=a\x00b B=2"),
    lines(
        "an escape that is not UTF-8",
        r"Environment=A=1 <V>=a\xffb B=2",
    ),
    lines(
        "an escape that is UTF-8 by bytes",
        r"Environment=<V>=a\xc3\xa9b",
    ),
    lines("a surrogate by escape", r"Environment=A=1 <V>=\ud800 B=2"),
    lines("escaped quotes", r#"Environment="<V>=say \"hi\" it\'s""#),
    lines("escapes in single quotes", r"Environment='<V>=a\tb\'c'"),
    lines("an escaped blank", r"Environment=<V>=a\ b A=1"),
    lines(
        "a backslash doubled at the end",
        "Environment=<V>=a\\\\\\\\",
    ),
    lines("a quote that is not closed", "Environment=A=1 \"<V>=2 B=3"),
    lines(
        "a single quote that is not closed",
        "Environment=A=1 <V>=it's B=3",
    ),
    lines("text behind a quote", "Environment=\"<V>=1\"x A=2"),
    lines("quotes next to each other", "Environment=\"<V>=1\"'2'\"3\""),
    lines("a quote inside a word", "Environment=<V>=a\"b c\"d"),
    lines("an empty value", "Environment=<V>="),
    lines("an empty quoted value", "Environment=<V>=\"\" A=''"),
    lines("empty words", "Environment=\"\" <V>=1 ''"),
    lines("a reset", "Environment="),
    lines("a reset of blanks", "Environment=   "),
    lines("a reset of quotes", "Environment=\"\""),
    lines("a reset and more", "Environment=\nEnvironment=<V>=<F>"),
    lines(
        "names that are none",
        "Environment=1A=2 A-B=3 =4 A.B=5 Ä=6 _A=7 a1=8",
    ),
    lines(
        "the same name twice",
        "Environment=<V>=1 <V>=2\nEnvironment=<V>=3",
    ),
    lines(
        "names in lower case",
        "Environment=kubelet_extra_args=1 Kubelet=2",
    ),
    lines("an equals sign in the value", "Environment=<V>=a=b==c"),
    lines("tabs between words", "Environment=\tA=1\t \t<V>=2\t"),
    lines(
        "a comment that is none",
        "Environment=<V>=1 # not a comment",
    ),
    lines("a semicolon that is no comment", "Environment=<V>=1 ; A=2"),
    lines("a hash inside", "Environment=<V>=a#b"),
    lines("export", "Environment=export <V>=1"),
    lines("continued", "Environment=<V>=1 \\\n  A=2 \\\n  B=3"),
    lines(
        "continued within quotes",
        "Environment=\"<V>=--a \\\n  --b\"",
    ),
    lines("continued within a word", "Environment=<V>=a\\\nb"),
    lines(
        "systemd's own variables",
        "Environment=PATH=/opt/bin:/usr/bin LANG=C INVOCATION_ID=1 HOME=/ USER=x",
    ),
    lines(
        "the manager's variable",
        "Environment=KUBELET_PROXY=unit ORACLE_SET=unit",
    ),
    lines("not ASCII", "Environment=<V>=grüße☃"),
    lines("a no-break space", "Environment=<V>=a\u{a0}b A=1"),
    lines(
        "very long",
        concat!(
            "Environment=\"<V>=",
            "--node-labels=a=0123456789abcdef0123456789abcdef,b=0123456789abcdef0123456789abcdef,c=0123456789abcdef0123456789abcdef,d=0123456789abcdef",
            " <F> <F> <F> <F>\""
        ),
    ),
    lines("passed: one that is set", "PassEnvironment=ORACLE_SET"),
    lines(
        "passed: one that is not",
        "PassEnvironment=<V> NO_SUCH_THING",
    ),
    lines(
        "passed: a reset",
        "PassEnvironment=ORACLE_SET\nPassEnvironment=",
    ),
    lines(
        "passed: not a name",
        "PassEnvironment=A=1 1A \"KUBELET_PROXY\"",
    ),
    lines("unset: a name", "UnsetEnvironment=<V>"),
    lines("unset: several", "UnsetEnvironment=<V> <V> KUBELET_PROXY"),
    lines(
        "unset: systemd's own",
        "UnsetEnvironment=PATH LANG INVOCATION_ID",
    ),
    lines(
        "unset: the manager's value",
        "UnsetEnvironment=KUBELET_PROXY=http://proxy:3128 ORACLE_SET=other",
    ),
    lines(
        "unset: a value",
        "Environment=<V>=1 A=1\nUnsetEnvironment=\"A=1\" \"<V>=2\"",
    ),
    lines(
        "unset: quoted with blanks",
        "Environment=\"A=1 2\" \"B=1 2\"\nUnsetEnvironment=\"A=1 2\" B=1",
    ),
    lines(
        "unset: an empty value",
        "Environment=A= B=1\nUnsetEnvironment=A= B=",
    ),
    lines("unset: reset", "UnsetEnvironment=<V>\nUnsetEnvironment="),
    lines(
        "unset: a specifier",
        "Environment=A=%N\nUnsetEnvironment=A=%N",
    ),
    lines(
        "unset: names that are none",
        "UnsetEnvironment=1A A-B <V> =x",
    ),
    lines("a state folder", "StateDirectory=<N>"),
    lines(
        "several folders",
        "RuntimeDirectory=<N> <N>/a\nLogsDirectory=<N>\nCacheDirectory=<N>\nConfigurationDirectory=<N>",
    ),
    lines("root by name", "User=root"),
    lines(
        "a search path for programs",
        "ExecSearchPath=/opt/bin:/usr/bin",
    ),
];

pub(super) const FILES: &[Ingredient] = &[
    lines(
        "missing, optional",
        "EnvironmentFile=-/etc/<N>/no-such-file",
    ),
    lines("missing", "EnvironmentFile=/etc/<N>/no-such-file"),
    lines("named twice", "EnvironmentFile=-<E>\nEnvironmentFile=-<E>"),
    lines("without its dash", "EnvironmentFile=<E>"),
    lines("a relative path", "EnvironmentFile=etc/default/<N>"),
    lines("a quoted path", "EnvironmentFile=\"<E>\""),
    lines("a quoted path with a dash", "EnvironmentFile=-\"<E>\""),
    lines("a blank behind the dash", "EnvironmentFile=- <E>"),
    lines("only a dash", "EnvironmentFile=-"),
    lines("two dashes", "EnvironmentFile=--<E>"),
    lines("two paths", "EnvironmentFile=-<E> -<E>"),
    lines("blanks at the end", "EnvironmentFile=-<E>   "),
    lines(
        "a comment behind it",
        "EnvironmentFile=-<E> # the operator's",
    ),
    lines("a reset", "EnvironmentFile="),
    lines("a reset and more", "EnvironmentFile=\nEnvironmentFile=-<E>"),
    lines("dots in the path", "EnvironmentFile=-/etc/../<E>"),
    lines("a dot in the path", "EnvironmentFile=-/./<E>"),
    lines("slashes doubled", "EnvironmentFile=-/<E>"),
    lines("a slash at the end", "EnvironmentFile=-<E>/"),
    lines(
        "the unit's name",
        "EnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/sysconfig/%p",
    ),
    lines("a bad specifier", "EnvironmentFile=-/etc/default/%5"),
    lines("a doubled percent", "EnvironmentFile=-/etc/default/%%N"),
    lines(
        "a variable in the path",
        "EnvironmentFile=-/etc/default/$<V>",
    ),
    lines("a tilde", "EnvironmentFile=-~/env"),
    lines(
        "an escape in the path",
        r"EnvironmentFile=-/etc\x2fdefault/<N>",
    ),
    lines("a continued path", "EnvironmentFile=-/etc/default/\\\n<N>"),
    lines(
        "in the wrong section",
        "[Unit]\nEnvironmentFile=-<E>\n[Service]",
    ),
    lines("the system's own file", "EnvironmentFile=/etc/os-release"),
    lines("a file of another kind", "EnvironmentFile=-/etc/hostname"),
];
