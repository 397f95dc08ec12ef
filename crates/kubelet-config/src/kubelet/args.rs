//! The words of command lines.

use super::systemd::Arg;

/// The words of a `/proc/PID/cmdline`, each ended by NUL, the program's name first. What is not UTF-8 is `U+FFFD`.
pub fn words(cmdline: &[u8]) -> Vec<String> {
    let words = cmdline.split_inclusive(|byte| *byte == 0).map(|word| word.strip_suffix(b"\0").unwrap_or(word));
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The values of an option that has one of these names, in order: what follows its `=`, else the next word.
pub(super) fn values(words: &[Arg], names: &[&str]) -> Vec<Arg> {
    let value = |(index, word): (usize, &Arg)| {
        let mut rests = names.iter().filter_map(|name| word.text.strip_prefix(name));
        let rest = rests.find(|rest| rest.is_empty() || rest.starts_with('='))?;
        match rest.strip_prefix('=') {
            Some(value) => Some(Arg { text: value.to_owned(), ..word.clone() }),
            None => words.get(index + 1).cloned(),
        }
    };
    words.iter().enumerate().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_cmdline_is_split_at_nul_and_empty_words_count() {
        assert_eq!(
            words(b"kubelet\0--config\0\0--root-dir=/r\xff\0"),
            ["kubelet", "--config", "", "--root-dir=/r\u{fffd}"]
        );
        assert!(words(b"").is_empty());
        // As setproctitle(3) leaves it: without a NUL at its end.
        assert_eq!(words(b"kubelet\0--config=/a"), ["kubelet", "--config=/a"]);
    }
}
