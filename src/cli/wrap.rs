//! Lines of a tree that are too long for a terminal.

/// Breaks lines at spaces where they are longer than `width`. What follows is indented below the
/// text, with the branches of the tree beside it going on.
pub(super) fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let lines: Vec<String> = text.lines().map(|line| wrap_line(line, width)).collect();
    lines.join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let is_branch = |c: char| " │├└─".contains(c);
    let end = line.find(|c| !is_branch(c)).unwrap_or(line.len());
    let (branches, words) = line.split_at(end);
    let below = |c: char| if "│├".contains(c) { '│' } else { ' ' };
    let indent: String = branches.chars().map(below).chain("  ".chars()).collect();
    let mut lines = vec![branches.to_owned()];
    let mut is_begun = false;
    for word in words.split(' ') {
        let last = lines.len() - 1;
        let length = lines[last].chars().count() + usize::from(is_begun) + word.chars().count();
        if is_begun && length > width {
            lines.push(format!("{indent}{word}"));
            continue;
        }
        if is_begun {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
        is_begun = true;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_text() {
        let tree = "\
ManifestWorkReplicaSet default/web  failed
└─ Placement default/all  failed
   ├─ ManagedCluster north  failed, because of this and of that
   │  └─ 1 work is fine, and long enough to be broken into three
   └─ ok";
        let expected = "\
ManifestWorkReplicaSet default/web
  failed
└─ Placement default/all  failed
   ├─ ManagedCluster north  failed,
   │    because of this and of that
   │  └─ 1 work is fine, and long
   │       enough to be broken into
   │       three
   └─ ok";
        let wrapped = wrap(tree, Some(36));
        let trimmed: Vec<&str> = wrapped.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n"), expected);
        assert_eq!(wrap(tree, None), tree);
        assert_eq!(wrap(tree, Some(200)), tree);
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        let long = "x".repeat(50);
        assert_eq!(
            wrap(&format!("a {long} b"), Some(20)),
            format!("a\n  {long}\n  b")
        );
    }
}
