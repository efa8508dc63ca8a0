use std::sync::Arc;

use super::*;

const ENVIRONMENT: Environment = Environment {
    variables: &["self"],
    functions: &["sets.contains"],
    max_characters: 100_000,
};

fn compile(source: &str) -> Program {
    Program::compile(source, &ENVIRONMENT).unwrap()
}

fn declared(kind: Kind, max_size: u64) -> Arc<Declared> {
    Arc::new(Declared { kind, max_size })
}

/// Texts, numbers and lists as a schema without any limits declares them.
fn unbounded() -> Arc<Declared> {
    let number = declared(Kind::Scalar, 1);
    let items = (MAX_REQUEST_BYTES - 2) / 2;
    let fields = [
        ("n", number.clone()),
        ("s", declared(Kind::Text, MAX_REQUEST_BYTES - 2)),
        ("m", declared(Kind::Text, 400)),
        ("l", declared(Kind::List(number), items)),
    ];
    let fields = fields.map(|(name, of)| (name.to_owned(), of));
    declared(Kind::Object(fields.into()), 0)
}

/// Read off kube-apiserver 1.36, which tells by which factor an estimate exceeds ten millions.
#[test]
fn estimates_are_those_of_the_reference() {
    let cases = [
        ("self.s.split('').map(x, self.s).size() > 0", 4.5),
        (
            "self.s.replace('a','aaaaaaaaaa').replace('a','aaaaaaaaaa').replace('a','aaaaaaaaaa').size() > 0",
            7.0,
        ),
    ];
    for (source, factor) in cases {
        let estimate = compile(source).estimate(&[unbounded()]);
        let seen = f64::from(u32::try_from(estimate / 100_000).unwrap()) / 100.0;
        assert!(
            (seen - factor).abs() < 0.06,
            "{source}: {seen}, not {factor}"
        );
    }
    let far_beyond = [
        "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z >= 0)))",
        "self.l.all(x, self.l.all(y, x+y >= 0))",
        "self.l.map(x, self.l.map(y, x+y)).size() > 0",
        "'a' + string(self.l.size()) == self.m",
        "self.unknown.all(x, true)",
    ];
    for source in far_beyond {
        let estimate = compile(source).estimate(&[unbounded()]);
        assert!(estimate > 1_000_000_000, "{source}: {estimate}");
    }
    let fine = [
        "self.l.all(x, x >= 0)",
        "self.s == self.s && self.m == self.s",
        "self.s.matches('^a+$')",
        "'%d'.format([self.l.size()]) == self.m",
        "self.m.replace('a','aaaaaaaaaa').replace('a','aaaaaaaaaa').replace('a','aaaaaaaaaa').size() > 0",
    ];
    for source in fine {
        let estimate = compile(source).estimate(&[unbounded()]);
        assert!(estimate < 10_000_000, "{source}: {estimate}");
    }
}

#[test]
fn sets_and_own_functions_need_their_environment() {
    let none = Environment {
        functions: &[],
        ..ENVIRONMENT
    };
    for source in ["sets.contains([1], [1])", "hasConditions(self)"] {
        assert!(Program::compile(source, &none).is_err(), "{source}");
    }
    let mut evaluation = Evaluation::new(&[], 1000);
    assert_eq!(
        evaluation.truth(&compile("sets.contains([1, 2], [2])")),
        Ok(true)
    );
}

/// The parser looks at the operand of each pair twice, nested 2^n times.
#[test]
fn pairs_of_prefix_operators_cost_nothing() {
    let nested = |open: &str, inner: &str| {
        let (open, close) = (open.repeat(80), ")".repeat(80));
        format!("{open}{inner}{close}")
    };
    let source = format!("{} && {} == 1", nested("!!(", "true"), nested("--(", "1"));
    let mut evaluation = Evaluation::new(&[], 1000);
    assert_eq!(evaluation.truth(&compile(&source)), Ok(true));
    let cases = [
        ("!!true", true),
        ("!!!true", false),
        ("1--1 == 2", true),
        ("1---1 == 0", true),
    ];
    for (source, expected) in cases {
        assert_eq!(evaluation.truth(&compile(source)), Ok(expected), "{source}");
    }
}

/// What grows is refused before it is made.
#[test]
fn values_that_grow_are_paid_before_they_are_made() {
    let long = "ab".repeat(1 << 20);
    let object = [from_json(&serde_json::json!({"s": long, "l": [1, 2, 3]}))];
    let growing = [
        "self.s.split('').size() > 0",
        "self.s.split('b').size() > 0",
        "self.s.findAll('').size() > 0",
        "self.s.replace('a', self.s).replace('a', self.s).size() > 0",
        "self.s.split('').map(x, self.s).size() > 0",
        "self.l.map(x, self.s + self.s + self.s + self.s + self.s).size() > 0",
        "sets.contains(self.s.split('a'), self.s.split('a'))",
    ];
    for source in growing {
        let mut evaluation = Evaluation::new(&object, 1_000_000);
        let outcome = evaluation.truth(&compile(source));
        assert_eq!(outcome, Err(Failure::TooExpensive), "{source}");
    }
}

#[test]
fn programs_know_their_variables() {
    let environment = Environment {
        variables: &["self", "oldSelf"],
        ..ENVIRONMENT
    };
    let refers = |source: &str| {
        let program = Program::compile(source, &environment).unwrap();
        [program.refers_to(0), program.refers_to(1)]
    };
    assert_eq!(refers("true"), [false, false]);
    assert_eq!(refers("self.l.all(x, x in oldSelf.l)"), [true, true]);
    assert_eq!(refers("[1].all(oldSelf, oldSelf > 0)"), [false, false]);
}
