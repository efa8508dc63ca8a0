//! The highest cost that an expression can have, from the declared types of its variables.
//!
//! The prices and the assumptions on sizes are those of kube-apiserver, so that a rule passes here
//! if and only if it passes there. Types are followed as far as costs depend on them: there is no
//! type checker.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::Key;

use crate::functions::{Function, Own};
use crate::program::{Loop, Node, Operator, Program};
use crate::value::Access;

/// The largest request that kube-apiserver takes, which bounds what has no declared size.
pub const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// A tenth of a unit for each byte of a text.
const TEXT: Factor = Factor { by: 1, of: 10 };
/// Reading and writing a text.
const TEXT_TWICE: Factor = Factor { by: 2, of: 10 };
/// For each byte of a pattern.
const PATTERN: Factor = Factor { by: 1, of: 4 };
/// A list or a map that is written down.
const LIST: u64 = 10;
const MAP: u64 = 30;

/// What is known about a value from its declaration.
#[derive(Debug, Clone)]
pub struct Declared {
    /// Its type.
    pub kind: Kind,
    /// Most bytes, items or entries that it can have.
    pub max_size: u64,
}

/// A type, as far as costs depend on it.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Not known.
    Any,
    /// Numbers, truth values, points in time and whatever else has no size.
    Scalar,
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// A list of items of one type.
    List(Arc<Declared>),
    /// A map with values of one type; how long its keys are.
    Map(u64, Arc<Declared>),
    /// An object with known fields.
    Object(BTreeMap<String, Arc<Declared>>),
}

impl Declared {
    /// Of an unknown type and size.
    pub fn any() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Any,
            max_size: u64::MAX,
        })
    }

    fn scalar() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Scalar,
            max_size: 1,
        })
    }

    fn text() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Text,
            max_size: u64::MAX,
        })
    }

    fn bytes() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Bytes,
            max_size: u64::MAX,
        })
    }

    fn list(of: Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::List(of),
            max_size: u64::MAX,
        })
    }
}

/// A rational number to multiply sizes by.
#[derive(Clone, Copy)]
struct Factor {
    by: u64,
    of: u64,
}

impl Factor {
    /// Rounded up.
    fn times(self, size: u64) -> u64 {
        if size == u64::MAX {
            return u64::MAX;
        }
        let product = u128::from(size) * u128::from(self.by);
        u64::try_from(product.div_ceil(u128::from(self.of))).unwrap_or(u64::MAX)
    }
}

/// Fewest and most bytes, items or entries.
#[derive(Debug, Clone, Copy)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    fn exactly(size: usize) -> Self {
        let size = size as u64;
        Self {
            min: size,
            max: size,
        }
    }

    fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

/// What is known about the value of a part of an expression.
#[derive(Debug, Clone)]
struct Known {
    /// Its type.
    of: Arc<Declared>,
    size: Size,
    /// The declaration that its size is looked up in: none for what the expression has made.
    at: Option<Arc<Declared>>,
}

impl Known {
    fn declared(of: &Arc<Declared>) -> Self {
        Self {
            of: of.clone(),
            size: Size::up_to(of.max_size),
            at: Some(of.clone()),
        }
    }

    fn made(of: Arc<Declared>, size: Size) -> Self {
        Self { of, size, at: None }
    }

    /// Made, of that type and of unknown size if it has one.
    fn made_of(of: Arc<Declared>) -> Self {
        let size = match of.kind {
            Kind::Scalar => Size { min: 1, max: 1 },
            _ => Size::up_to(u64::MAX),
        };
        Self::made(of, size)
    }

    fn any() -> Self {
        Self::made_of(Declared::any())
    }

    fn scalar() -> Self {
        Self::made_of(Declared::scalar())
    }

    fn text(size: Size) -> Self {
        Self::made(Declared::text(), size)
    }

    fn list(of: Arc<Declared>, size: Size) -> Self {
        Self::made(Declared::list(of), size)
    }

    /// One of the items of a list, the values of a map or the fields of an object.
    ///
    /// kube-apiserver takes the sizes of elements of what the expression has made from the
    /// declaration of `self`, whatever they are.
    fn element(&self, name: Option<&str>, root: Option<&Arc<Declared>>) -> Self {
        let of = child(&self.of, name).unwrap_or_else(Declared::any);
        let at = match &self.at {
            Some(at) => child(at, name),
            None => root.cloned(),
        };
        match at {
            Some(at) => Self {
                of,
                size: Size::up_to(at.max_size),
                at: Some(at),
            },
            None => Self::made_of(of),
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self.of.kind, Kind::Scalar)
    }

    fn is_text(&self) -> bool {
        matches!(self.of.kind, Kind::Text | Kind::Bytes)
    }

    fn is_list(&self) -> bool {
        matches!(self.of.kind, Kind::List(_))
    }
}

/// The declaration of an element.
fn child(of: &Declared, name: Option<&str>) -> Option<Arc<Declared>> {
    match (&of.kind, name) {
        (Kind::List(item) | Kind::Map(_, item), _) => Some(item.clone()),
        (Kind::Object(fields), Some(name)) => fields.get(name).cloned(),
        _ => None,
    }
}

impl Program {
    /// The highest cost that the expression can have, with variables of these types.
    pub fn estimate(&self, variables: &[Arc<Declared>]) -> u64 {
        let mut estimate = Estimate {
            variables,
            locals: Vec::new(),
        };
        estimate.node(self.node()).0
    }
}

struct Estimate<'a> {
    variables: &'a [Arc<Declared>],
    locals: Vec<Known>,
}

fn sum(costs: &[u64]) -> u64 {
    costs.iter().copied().fold(0, u64::saturating_add)
}

impl Estimate<'_> {
    /// Cost and value of a part. As deep as the compiler lets expressions be.
    #[allow(clippy::too_many_lines, reason = "one arm for each kind of node")]
    fn node(&mut self, node: &Node) -> (u64, Known) {
        match node {
            Node::Literal(value) => (0, literal(value)),
            Node::Variable(at) => {
                let known = self.variables.get(*at).map(Known::declared);
                (1, known.unwrap_or_else(Known::any))
            }
            Node::Local(slot) => (
                1,
                self.locals.get(*slot).cloned().unwrap_or_else(Known::any),
            ),
            Node::Select(of, field, access) => {
                let (cost, of) = self.node(of);
                let name = match field {
                    Key::String(name) => Some(name.as_str()),
                    _ => None,
                };
                match access {
                    Access::Has => (cost, Known::scalar()),
                    _ => (
                        cost.saturating_add(1),
                        of.element(name, self.variables.first()),
                    ),
                }
            }
            Node::Index(of, _) => {
                let (cost, index) = self.node(&of[1]);
                let (of_cost, of) = self.node(&of[0]);
                let name = match (&index.of.kind, &of.of.kind) {
                    (Kind::Text, Kind::Object(_)) => None,
                    _ => Some(""),
                };
                (
                    sum(&[cost, of_cost, 1]),
                    of.element(name, self.variables.first()),
                )
            }
            Node::Not(of) | Node::NotFalse(of) | Node::Negate(of) => {
                (self.node(of).0.saturating_add(1), Known::scalar())
            }
            Node::And(of) | Node::Or(of) => {
                let cost = sum(&[self.node(&of[0]).0, self.node(&of[1]).0]);
                (cost, Known::scalar())
            }
            Node::Choose(of) => {
                let (condition, _) = self.node(&of[0]);
                let ((then, a), (otherwise, b)) = (self.node(&of[1]), self.node(&of[2]));
                let size = a.size.union(b.size);
                let cost = condition.saturating_add(then.max(otherwise));
                (cost, Known::made(a.of, size))
            }
            Node::Binary(operator, of) => {
                let ((a_cost, a), (b_cost, b)) = (self.node(&of[0]), self.node(&of[1]));
                let (cost, known) = binary(*operator, &a, &b);
                (sum(&[a_cost, b_cost, cost]), known)
            }
            Node::List(elements) => {
                let mut cost = LIST;
                let mut of = None;
                for element in elements {
                    let (own, known) = self.node(&element.node);
                    cost = cost.saturating_add(own);
                    of.get_or_insert(known);
                }
                let of = of.map_or_else(Declared::any, |known| known.of);
                (cost, Known::list(of, Size::exactly(elements.len())))
            }
            Node::Map(entries) => {
                let mut cost = MAP;
                for (key, element) in entries {
                    cost = sum(&[cost, self.node(key).0, self.node(&element.node).0]);
                }
                let of = Arc::new(Declared {
                    kind: Kind::Map(u64::MAX, Declared::any()),
                    max_size: entries.len() as u64,
                });
                (cost, Known::made(of, Size::exactly(entries.len())))
            }
            Node::Loop(of) => self.comprehension(of),
            Node::Append(_, node) => {
                let (cost, known) = self.node(node);
                let list = Known::list(known.of, Size::up_to(u64::MAX));
                (cost.saturating_add(LIST + 2), list)
            }
            Node::Own(own, arguments) => {
                let (cost, arguments) = self.nodes(arguments);
                let (own, known) = own_call(*own, &arguments);
                (cost.saturating_add(own), known)
            }
            Node::Call(function, arguments) => {
                let last = match arguments.last() {
                    Some(Node::Literal(Value::Int(count))) => u64::try_from(*count).ok(),
                    _ => None,
                };
                let (cost, arguments) = self.nodes(arguments);
                let Function::Library(call) = function else {
                    return (cost.saturating_add(1), Known::any());
                };
                let (own, known) = library_call(&call.name, &arguments, last);
                (cost.saturating_add(own), known)
            }
            Node::MapOptional(_, of, slot, outcome) => {
                let (of_cost, of) = self.node(of);
                self.locals.truncate(*slot);
                self.locals.push(of);
                let (cost, known) = self.node(outcome);
                self.locals.truncate(*slot);
                // Asks whether there is a value, takes it, and wraps the outcome.
                (sum(&[of_cost, of_cost, cost, LIST + 5]), known)
            }
        }
    }

    fn nodes(&mut self, nodes: &[Node]) -> (u64, Vec<Known>) {
        let mut cost = 0_u64;
        let known = nodes.iter().map(|node| {
            let (own, known) = self.node(node);
            cost = cost.saturating_add(own);
            known
        });
        let known = known.collect();
        (cost, known)
    }

    fn comprehension(&mut self, of: &Loop) -> (u64, Known) {
        let (range_cost, range) = self.node(&of.range);
        let (start_cost, start) = self.node(&of.start);
        let element = match &range.of.kind {
            Kind::Map(key, _) => Known::text(Size::up_to(*key)),
            Kind::Object(_) => Known::text(Size::up_to(MAX_REQUEST_BYTES)),
            _ => range.element(None, self.variables.first()),
        };
        self.locals.truncate(of.slot);
        self.locals.push(start.clone());
        self.locals.push(element);
        let (condition, _) = self.node(&of.condition);
        let (step, gathered) = self.node(&of.step);
        let (result, answer) = self.node(&of.result);
        self.locals.truncate(of.slot);
        let steps = range
            .size
            .max
            .saturating_mul(condition.saturating_add(step));
        let cost = sum(&[range_cost, start_cost, result, steps]);
        // The only results that are no scalars are lists, of at most as many items.
        let known = if start.is_list() {
            let items = child(&gathered.of, None).unwrap_or_else(Declared::any);
            Known::list(items, Size::up_to(range.size.max))
        } else {
            answer
        };
        (cost, known)
    }
}

fn literal(value: &Value) -> Known {
    match value {
        Value::String(text) => Known::text(Size::exactly(text.len())),
        Value::Bytes(bytes) => Known::made(Declared::bytes(), Size::exactly(bytes.len())),
        _ => Known::scalar(),
    }
}

fn binary(operator: Operator, a: &Known, b: &Known) -> (u64, Known) {
    match operator {
        Operator::Add => {
            let size = a.size.plus(b.size);
            if a.is_scalar() || b.is_scalar() {
                (1, Known::scalar())
            } else if a.is_list() || b.is_list() {
                let of = if a.is_list() { &a.of } else { &b.of };
                (1, Known::made(of.clone(), size))
            } else {
                (TEXT.times(size.max), Known::text(size))
            }
        }
        Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
            (1, Known::scalar())
        }
        Operator::In if b.is_list() => (b.size.max, Known::scalar()),
        Operator::In => (1, Known::scalar()),
        Operator::Equal | Operator::NotEqual => {
            let smaller = a.size.max.min(b.size.max);
            (TEXT.times(smaller), Known::scalar())
        }
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let smaller = a.size.max.min(b.size.max);
            let cost = if a.is_scalar() || b.is_scalar() {
                1
            } else {
                TEXT.times(smaller)
            };
            (cost, Known::scalar())
        }
    }
}

/// A text and a pattern or part to look for, both at least one byte.
fn search(text: &Known, text_factor: Factor, part: &Known, part_factor: Factor) -> u64 {
    let text = text_factor.times(text.size.max);
    text.saturating_mul(part_factor.times(part.size.max))
}

fn own_call(own: Own, arguments: &[Known]) -> (u64, Known) {
    let first = arguments.first().cloned();
    match own {
        Own::Matches | Own::Find | Own::FindAll => {
            let [text, pattern, ..] = arguments else {
                return (1, Known::any());
            };
            let mut longer = text.clone();
            longer.size.max = longer.size.max.saturating_add(1);
            let cost = search(&longer, TEXT, pattern, PATTERN);
            let known = match own {
                Own::Matches => Known::scalar(),
                Own::Find => Known::text(Size::up_to(text.size.max)),
                _ => Known::list(Declared::text(), Size::up_to(text.size.max)),
            };
            (cost, known)
        }
        Own::Size | Own::Type | Own::HasConditions | Own::OptionalHasValue => (1, Known::scalar()),
        Own::OptionalOr | Own::OptionalOrValue => match arguments {
            [a, b] => {
                let size = a.size.union(b.size);
                let of = if matches!(a.of.kind, Kind::Any) { b } else { a };
                (1, Known::made(of.of.clone(), size))
            }
            _ => (1, Known::any()),
        },
        Own::Dyn
        | Own::OptionalNone
        | Own::OptionalOf
        | Own::OptionalOfNonZero
        | Own::OptionalValue => (1, first.unwrap_or_else(Known::any)),
    }
}

/// `last` is the last argument, if it is a number that is written down.
fn library_call(name: &str, arguments: &[Known], last: Option<u64>) -> (u64, Known) {
    let Some(first) = arguments.first() else {
        return (1, Known::any());
    };
    let second = arguments.get(1).map_or(Size::up_to(u64::MAX), |k| k.size);
    let traversal = TEXT.times(first.size.max);
    let same = || Known::text(Size::up_to(first.size.max));
    match name {
        "startsWith" | "endsWith" => (TEXT.times(second.max), Known::scalar()),
        "contains" if !first.is_list() => {
            let part = Known::text(second);
            (search(first, TEXT, &part, TEXT), Known::scalar())
        }
        "bytes" => (traversal, Known::made(Declared::bytes(), first.size)),
        "string" if matches!(first.of.kind, Kind::Bytes) => (traversal, same()),
        "string" if first.is_text() => (1, same()),
        // One of unknown type can be bytes.
        "string" if matches!(first.of.kind, Kind::Any) => {
            (traversal, Known::text(Size::up_to(u64::MAX)))
        }
        "string" => (1, Known::text(Size::up_to(u64::MAX))),
        "strings.quote" => {
            let twice = first.size.max.saturating_mul(2).saturating_add(2);
            (traversal, Known::text(Size::up_to(twice)))
        }
        "format" => (traversal, Known::text(Size::up_to(u64::MAX))),
        "lowerAscii" | "upperAscii" | "substring" | "trim" | "reverse" if !first.is_list() => {
            (traversal, same())
        }
        "charAt" => (1, Known::text(Size::up_to(4))),
        "ip.isCanonical" => (TEXT_TWICE.times(first.size.max), Known::scalar()),
        "replace" => {
            let [_, from, to, ..] = arguments else {
                return (1, Known::any());
            };
            (
                TEXT_TWICE.times(first.size.max),
                Known::text(Size::up_to(replaced(first.size, from.size, to.size))),
            )
        }
        "split" => {
            let items = match (arguments.len(), last) {
                (3, Some(last)) => last.min(first.size.max),
                _ => first.size.max,
            };
            let parts = Known::list(Declared::text(), Size::up_to(items));
            (TEXT_TWICE.times(first.size.max), parts)
        }
        "join" => {
            let items = first.size.max;
            let separator = arguments.get(1).map_or(0, |k| k.size.max);
            let text = items
                .saturating_mul(first.element(None, None).size.max)
                .saturating_add(separator.saturating_mul(items.saturating_sub(1)));
            (TEXT.times(text), Known::text(Size::up_to(text)))
        }
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" if first.is_list() => {
            let item = first.element(None, None);
            let each = if item.is_scalar() {
                1
            } else {
                TEXT.times(item.size.max)
            };
            let known = match name {
                "isSorted" | "indexOf" | "lastIndexOf" => Known::scalar(),
                _ => item,
            };
            (first.size.max.saturating_mul(each), known)
        }
        "url" | "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
        | "isSemver" | "isURL" | "indexOf" | "lastIndexOf" => (traversal, Known::scalar()),
        "sets.contains" | "sets.intersects" | "sets.equivalent" => {
            let pairs = first.size.max.saturating_mul(second.max);
            let factor = if name == "sets.equivalent" { 2 } else { 1 };
            (
                pairs.saturating_mul(factor).saturating_add(1),
                Known::scalar(),
            )
        }
        "getHost" | "getHostname" | "getPort" | "getScheme" | "getEscapedPath" => {
            (1, Known::text(Size::up_to(u64::MAX)))
        }
        "getQuery" => (1, Known::any()),
        _ => (1, Known::scalar()),
    }
}

/// Most bytes of a text after replacements.
fn replaced(text: Size, from: Size, to: Size) -> u64 {
    if from.min == 0 {
        // Before each character and at the end.
        let places = text.max.saturating_add(1);
        places.saturating_mul(to.max).saturating_add(text.max)
    } else if to.max <= from.min {
        text.max
    } else if text.max == u64::MAX {
        u64::MAX
    } else {
        text.max.div_ceil(from.min).saturating_mul(to.max)
    }
}
