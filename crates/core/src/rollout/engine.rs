//! The rollout of one template over the clusters of one placement.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::cluster::ClusterState;
use super::stages::{Group, Groups, Plan, Stage, plan};
use super::strategy::Strategy;

/// What a work that carries the template says of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How far the cluster is.
    pub state: ClusterState,
    /// Since when; `None` where the work does not tell.
    pub since: Option<Timestamp>,
    /// When the work was given the template, where that is known.
    pub started: Option<Timestamp>,
}

/// Where a cluster stands in a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It has not had its turn.
    Waiting,
    /// It has not had its turn and is left out: somebody paused it.
    Held,
    /// It was told to begin, and has not applied the work.
    Started,
    /// On its way.
    Progressing,
    /// It failed, and has time left to succeed.
    Failed,
    /// It succeeded, and has to stay so for a while.
    Soaking,
    /// There.
    Succeeded,
    /// It did not succeed in time.
    TimedOut,
}

impl Turn {
    /// Whether the cluster has had its turn: its work is to carry the template.
    pub const fn has_come(self) -> bool {
        !matches!(self, Self::Waiting | Self::Held)
    }

    /// Whether something is still to come from the cluster by itself.
    const fn is_under_way(self) -> bool {
        matches!(self, Self::Started | Self::Progressing)
    }

    const fn fails(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }

    const fn moves(self) -> bool {
        matches!(self, Self::Progressing | Self::Failed | Self::Soaking)
    }
}

/// Numbers of clusters by [`Turn`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the Turn of its name")]
pub struct Tally {
    pub waiting: u32,
    pub held: u32,
    pub started: u32,
    pub progressing: u32,
    pub failed: u32,
    pub soaking: u32,
    pub succeeded: u32,
    pub timed_out: u32,
}

impl Tally {
    fn slot(&mut self, turn: Turn) -> &mut u32 {
        match turn {
            Turn::Waiting => &mut self.waiting,
            Turn::Held => &mut self.held,
            Turn::Started => &mut self.started,
            Turn::Progressing => &mut self.progressing,
            Turn::Failed => &mut self.failed,
            Turn::Soaking => &mut self.soaking,
            Turn::Succeeded => &mut self.succeeded,
            Turn::TimedOut => &mut self.timed_out,
        }
    }

    /// Adds the numbers of another rollout.
    pub const fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.held += other.held;
        self.started += other.started;
        self.progressing += other.progressing;
        self.failed += other.failed;
        self.soaking += other.soaking;
        self.succeeded += other.succeeded;
        self.timed_out += other.timed_out;
    }
}

/// Why a rollout goes no further: more clusters failed than may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped<'a> {
    /// The group in which they failed, where failures count by group.
    pub group: Option<&'a Group>,
    /// How many failed.
    pub failures: usize,
    /// How many may.
    pub allowed: u32,
    /// The first of them by name.
    pub first: &'a str,
}

#[derive(Debug, Clone)]
struct Member {
    stage: usize,
    turn: Turn,
    held: bool,
    report: Option<Report>,
    /// Its agent could not apply the template.
    refused: bool,
    /// When the cluster was told to begin, as far as known.
    started: Option<Timestamp>,
    /// Since when its turn is what it is; what soak and deadline are counted from.
    since: Option<Timestamp>,
    /// When time alone changes its turn.
    wake: Option<Timestamp>,
}

impl Member {
    const fn is_stuck(&self) -> bool {
        self.refused && matches!(self.turn, Turn::Started)
    }
}

/// Which clusters carry the template, which are next, and how it goes. See the module.
#[derive(Debug, Clone)]
pub struct Rollout {
    soak: Duration,
    deadline: Option<Duration>,
    stages: Vec<Stage>,
    mandatory: usize,
    members: HashMap<Arc<str>, Member>,
    /// Stages that decide whose turn it is; the others are through.
    busy: BTreeSet<usize>,
    /// Clusters that move, in the mandatory stages and in the others.
    moving: [u32; 2],
    tally: Tally,
    /// Clusters that were told to begin and whose agents could not apply the template.
    refused: u32,
    /// Clusters whose agents could not apply the template, wherever they stand.
    all_refused: u32,
    /// Clusters that are under way, by since when.
    under_way: BTreeSet<(Timestamp, Arc<str>)>,
    timers: BTreeSet<(Timestamp, Arc<str>)>,
}

/// What a pass over stages ends with.
enum Pass {
    /// The next cluster is in this stage.
    Open(usize),
    /// Nothing may begin.
    Blocked,
    /// All stages are through.
    Through,
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Rollout {
    /// A rollout in which no cluster has had its turn.
    pub fn new(strategy: &Strategy, groups: &Groups) -> Self {
        let Plan {
            stages,
            mandatory,
            members,
        } = plan(strategy, groups);
        let mut rollout = Self {
            soak: strategy.soak,
            deadline: strategy.deadline,
            stages,
            mandatory,
            members: HashMap::with_capacity(members.len()),
            busy: BTreeSet::new(),
            moving: [0, 0],
            tally: Tally::default(),
            refused: 0,
            all_refused: 0,
            under_way: BTreeSet::new(),
            timers: BTreeSet::new(),
        };
        for (cluster, stage) in members {
            rollout.stages[stage].waiting.insert(Arc::clone(&cluster));
            rollout.busy.insert(stage);
            rollout.tally.waiting += 1;
            let member = Member {
                stage,
                turn: Turn::Waiting,
                held: false,
                report: None,
                refused: false,
                started: None,
                since: None,
                wake: None,
            };
            rollout.members.insert(cluster, member);
        }
        rollout
    }

    /// Takes over who was told to begin from a rollout of the same template over other clusters or
    /// by another strategy.
    pub fn succeed(&mut self, before: &Self) {
        for (cluster, member) in &before.members {
            if let (Turn::Started, Some(since)) = (member.turn, member.since) {
                self.begin(cluster, since);
            }
        }
    }

    /// What the work of a cluster says; `None` while it does not carry the template. Clusters of
    /// other placements are ignored.
    pub fn report(&mut self, cluster: &str, report: Option<Report>, now: Timestamp) {
        let Some(member) = self.members.get(cluster) else {
            return;
        };
        if member.report == report && (report.is_some() || !member.turn.moves()) {
            return;
        }
        let before = member.turn;
        let held = member.held;
        let Some(told) = report else {
            // Whoever was told to begin still is: its work is about to be written.
            let next = match before {
                Turn::Waiting | Turn::Held | Turn::Started => before,
                _ if held => Turn::Held,
                _ => Turn::Waiting,
            };
            if let Some(member) = self.members.get_mut(cluster) {
                member.report = None;
                if next != before {
                    member.started = None;
                }
            }
            if next != before {
                self.turn_to(cluster, next, None, None);
            }
            return;
        };
        let started = told.started.or(member.started);
        let proved = told.state == ClusterState::Succeeded
            && (before.is_under_way() || before == Turn::Failed)
            && told.since <= started;
        let since = if proved {
            // Its conditions say the same as under the template before, so they do not tell when
            // the cluster got there with this one. It was now.
            Some(now)
        } else if told.state == ClusterState::ToApply {
            started
        } else {
            Some(
                told.since
                    .map_or(now, |since| started.map_or(since, |at| since.max(at))),
            )
        };
        if let Some(member) = self.members.get_mut(cluster) {
            member.report = report;
            member.started = started;
        }
        self.settle(cluster, told.state, since, now);
    }

    /// Whether the agent of a cluster could not apply the template. Decides nothing; it is counted
    /// for [`Rollout::refused`].
    pub fn refuse(&mut self, cluster: &str, refused: bool) {
        if !refused && self.all_refused == 0 {
            return; // mostly
        }
        if let Some(member) = self.members.get_mut(cluster) {
            let was = member.is_stuck();
            self.all_refused += u32::from(refused);
            self.all_refused -= u32::from(member.refused);
            member.refused = refused;
            self.refused += u32::from(member.is_stuck());
            self.refused -= u32::from(was);
        }
    }

    /// Leaves a cluster out that has not had its turn, or takes it in again.
    pub fn hold(&mut self, cluster: &str, held: bool) {
        let Some(member) = self.members.get_mut(cluster) else {
            return;
        };
        member.held = held;
        // Whoever was told to begin and has no work with the template yet has not begun.
        let next = match (member.turn, held) {
            (Turn::Waiting, true) => Turn::Held,
            (Turn::Started, true) if member.report.is_none() => Turn::Held,
            (Turn::Held, false) => Turn::Waiting,
            _ => return,
        };
        member.started = None;
        self.turn_to(cluster, next, None, None);
    }

    /// The cluster whose turn it is now, if any; it counts as told to begin.
    pub fn next(&mut self, now: Timestamp) -> Option<Arc<str>> {
        let mandatory = self.open_stage(0..self.mandatory, self.moving[0]);
        let stage = match mandatory {
            Pass::Open(stage) => stage,
            Pass::Blocked => return None,
            Pass::Through => {
                let rest = self.mandatory..self.stages.len();
                match self.open_stage(rest, self.moving[1]) {
                    Pass::Open(stage) => stage,
                    Pass::Blocked | Pass::Through => return None,
                }
            }
        };
        let cluster = self.stages.get(stage)?.waiting.first().cloned()?;
        self.begin(&cluster, now);
        Some(cluster)
    }

    fn begin(&mut self, cluster: &str, now: Timestamp) {
        let deadline = self.deadline.map(|deadline| later(now, deadline));
        if let Some(member) = self.members.get_mut(cluster)
            && member.turn == Turn::Waiting
        {
            member.started = Some(now);
            self.turn_to(cluster, Turn::Started, Some(now), deadline);
        }
    }

    /// Lets time pass. Costs O(clusters whose turn changes).
    pub fn tick(&mut self, now: Timestamp) {
        while let Some((at, cluster)) = self.timers.first()
            && *at <= now
        {
            let cluster = Arc::clone(cluster);
            let Some(member) = self.members.get(&cluster) else {
                return; // timers go with their clusters
            };
            let state = member
                .report
                .map_or(ClusterState::ToApply, |report| report.state);
            self.settle(&cluster, state, member.since, now);
        }
    }

    /// When [`Rollout::tick`] will have something to do.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Where a cluster stands; `None` for one that is not of this placement.
    pub fn turn(&self, cluster: &str) -> Option<Turn> {
        self.members.get(cluster).map(|member| member.turn)
    }

    /// How many clusters stand where.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// How many of the clusters that were told to begin could not apply the template.
    pub const fn refused(&self) -> u32 {
        self.refused
    }

    /// The next cluster that has stayed well for long enough, and when that will be.
    pub fn next_proven(&self) -> Option<(Timestamp, &str)> {
        let mut timers = self.timers.iter();
        let next = timers.find(|(_, cluster)| self.turn(cluster) == Some(Turn::Soaking));
        next.map(|(at, cluster)| (*at, &**cluster))
    }

    /// A copy whose numbers are counted anew, for comparison.
    #[must_use]
    pub fn recounted(&self) -> Self {
        let mut copy = self.clone();
        copy.tally = Tally::default();
        copy.refused = 0;
        for member in self.members.values() {
            *copy.tally.slot(member.turn) += 1;
            copy.refused += u32::from(member.is_stuck());
        }
        copy
    }

    /// The cluster that has been under way longest, and since when.
    pub fn longest_under_way(&self) -> Option<(Timestamp, &str)> {
        let first = self.under_way.first();
        first.map(|(since, cluster)| (*since, &**cluster))
    }

    /// The clusters that did not succeed in time, by stage and name.
    pub fn timed_out(&self) -> impl Iterator<Item = &str> {
        let failing = self.stages.iter().flat_map(|stage| &stage.failing);
        failing
            .map(|cluster| &**cluster)
            .filter(|cluster| self.turn(cluster) == Some(Turn::TimedOut))
    }

    /// When the deadline of a cluster was over that did not succeed in time.
    pub fn timed_out_at(&self, cluster: &str) -> Option<Timestamp> {
        let member = self.members.get(cluster)?;
        let since = member.since.filter(|_| member.turn == Turn::TimedOut)?;
        self.deadline.map(|deadline| later(since, deadline))
    }

    /// Why nothing more begins, if too many clusters failed and others wait.
    pub fn stopped(&self) -> Option<Stopped<'_>> {
        if self.tally.waiting == 0 {
            return None;
        }
        let breached = |stage: &&usize| self.stages[**stage].breached();
        let stage = &self.stages[*self.busy.iter().find(breached)?];
        Some(Stopped {
            group: stage.group.as_ref(),
            failures: stage.failing.len(),
            allowed: stage.max_failures,
            first: stage.failing.first()?,
        })
    }

    /// The stage of the next cluster. Goes only through stages in which something waits, has just
    /// begun or failed.
    fn open_stage(&self, stages: Range<usize>, moving: u32) -> Pass {
        let (mut begun, mut failed) = (0, 0);
        for &number in self.busy.range(stages.clone()) {
            let stage = &self.stages[number];
            if let Some(concurrency) = stage.concurrency {
                // The only one: clusters of all its groups, so many at a time.
                let full = stage.started + stage.moving >= concurrency;
                return if full || stage.breached() || stage.waiting.is_empty() {
                    Pass::Blocked
                } else {
                    Pass::Open(number)
                };
            }
            // What moves in any group holds the next one, also what moves in a later group. Only
            // failures that are tolerated do not.
            if number != stages.start && moving + begun > failed {
                return Pass::Blocked;
            }
            if !stage.waiting.is_empty() {
                return Pass::Open(number);
            }
            if stage.breached() {
                return Pass::Blocked;
            }
            begun += stage.started;
            failed += stage.failed_in_time;
        }
        // Mandatory groups have to be through before anything else; for the others it is the end.
        if moving + begun > 0 {
            Pass::Blocked
        } else {
            Pass::Through
        }
    }

    /// Puts a cluster where its state and the time want it.
    fn settle(
        &mut self,
        cluster: &str,
        state: ClusterState,
        since: Option<Timestamp>,
        now: Timestamp,
    ) {
        let deadline = since
            .zip(self.deadline)
            .map(|(since, deadline)| later(since, deadline));
        let timed_out = deadline.is_some_and(|deadline| deadline <= now);
        let (turn, wake) = match state {
            ClusterState::Succeeded => {
                let proven = since.map(|since| later(since, self.soak));
                match proven.filter(|proven| *proven > now) {
                    Some(proven) => (Turn::Soaking, Some(proven)),
                    None => (Turn::Succeeded, None),
                }
            }
            _ if timed_out => (Turn::TimedOut, None),
            ClusterState::ToApply => (Turn::Started, deadline),
            ClusterState::Progressing => (Turn::Progressing, deadline),
            ClusterState::Failed => (Turn::Failed, deadline),
        };
        self.turn_to(cluster, turn, since, wake);
    }

    /// The only place where a turn changes: all that is counted changes with it.
    fn turn_to(
        &mut self,
        cluster: &str,
        turn: Turn,
        since: Option<Timestamp>,
        wake: Option<Timestamp>,
    ) {
        let Some((cluster, _)) = self.members.get_key_value(cluster) else {
            return;
        };
        let cluster = Arc::clone(cluster);
        let Some(member) = self.members.get_mut(&cluster) else {
            return;
        };
        let was_stuck = member.is_stuck();
        let before = std::mem::replace(&mut member.turn, turn);
        self.refused += u32::from(member.is_stuck());
        self.refused -= u32::from(was_stuck);
        if let Some(at) = member.wake.take() {
            self.timers.remove(&(at, Arc::clone(&cluster)));
        }
        if before.is_under_way()
            && let Some(since) = member.since
        {
            self.under_way.remove(&(since, Arc::clone(&cluster)));
        }
        (member.since, member.wake) = (since, wake);
        if let Some(at) = wake {
            self.timers.insert((at, Arc::clone(&cluster)));
        }
        if turn.is_under_way()
            && let Some(since) = since
        {
            self.under_way.insert((since, Arc::clone(&cluster)));
        }
        *self.tally.slot(before) -= 1;
        *self.tally.slot(turn) += 1;
        let number = member.stage;
        let moving = &mut self.moving[usize::from(number >= self.mandatory)];
        let stage = &mut self.stages[number];
        let count = |number: &mut u32, was: bool, is: bool| {
            *number += u32::from(is);
            *number -= u32::from(was);
        };
        count(moving, before.moves(), turn.moves());
        count(&mut stage.moving, before.moves(), turn.moves());
        let started = |turn| turn == Turn::Started;
        count(&mut stage.started, started(before), started(turn));
        let failed = |turn| turn == Turn::Failed;
        count(&mut stage.failed_in_time, failed(before), failed(turn));
        match (before.fails(), turn.fails()) {
            (false, true) => drop(stage.failing.insert(Arc::clone(&cluster))),
            (true, false) => drop(stage.failing.remove(&cluster)),
            _ => {}
        }
        match (before, turn) {
            (Turn::Waiting, Turn::Waiting) => {}
            (Turn::Waiting, _) => drop(stage.waiting.remove(&cluster)),
            (_, Turn::Waiting) => drop(stage.waiting.insert(cluster)),
            _ => {}
        }
        if stage.waiting.is_empty() && stage.failing.is_empty() && stage.started == 0 {
            self.busy.remove(&number);
        } else {
            self.busy.insert(number);
        }
    }
}
