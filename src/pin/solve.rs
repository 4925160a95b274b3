//! Versions that fit together: what an installed package requires, and what the packs know of the rest.

use std::collections::BTreeMap;

use pep440_rs::{Version, VersionSpecifiers};
use pep508_rs::{ExtraName, Requirement};

use crate::environment::{Distribution, Environment};
use crate::packs::{Machines, Overlap, Packs, parse_requirement, required_name, required_range, satisfies};

/// Who asks for which versions.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    /// `vllm 0.26.0`.
    pub by: String,
    /// The versions; none for any.
    pub range: VersionSpecifiers,
}

/// What the package is installed with, and what else may be put beside it.
pub(super) struct Problem<'a> {
    packs: &'a Packs,
    machines: Machines,
    /// What is required, by normalised name.
    required: BTreeMap<String, Vec<Demand>>,
    /// Extras that it asks for, by normalised name.
    extras: BTreeMap<String, Vec<ExtraName>>,
    /// What is installed now: kept where it fits.
    present: BTreeMap<String, Version>,
}

/// A version for each package, by normalised name.
pub(super) type Choice = BTreeMap<String, Version>;

impl<'a> Problem<'a> {
    /// The requirements of an installed package within the stack.
    pub fn new(environment: &Environment, packs: &'a Packs, subject: &Distribution, version: &Version) -> Problem<'a> {
        let machines = Machines::of(environment);
        let mut problem = Problem {
            packs,
            machines,
            required: BTreeMap::new(),
            extras: BTreeMap::new(),
            present: environment.distributions.iter().filter_map(|d| Some((d.name.clone(), d.version()?))).collect(),
        };
        let by = format!("{} {}", subject.display_name, subject.raw_version);
        let lines = subject.requires.iter().filter(|(text, _)| packs.in_stack(&required_name(text)));
        let declared: Vec<Requirement> = lines.filter_map(|(text, _)| parse_requirement(text).ok()).collect();
        let observed = packs.needs_of(&subject.name, version).filter(|needs| needs.because.is_some());
        let observed = observed.flat_map(|needs| needs.requires.iter().filter_map(|need| need.of(version)));
        for requirement in declared.into_iter().chain(observed) {
            if problem.machines.apply(&requirement, &[]) {
                problem.require(&by, &requirement);
            }
        }
        problem
    }

    fn require(&mut self, by: &str, requirement: &Requirement) {
        let name = requirement.name.to_string();
        let range = required_range(requirement).cloned().unwrap_or_default();
        self.extras.entry(name.clone()).or_default().extend(requirement.extras.iter().cloned());
        self.required.entry(name).or_default().push(Demand { by: by.to_owned(), range });
    }

    /// Asks for any version of one more package.
    pub fn with(&self, name: &str) -> Problem<'a> {
        let mut required = self.required.clone();
        required.entry(name.to_owned()).or_default();
        Problem {
            packs: self.packs,
            machines: Machines::clone(&self.machines),
            required,
            extras: self.extras.clone(),
            present: self.present.clone(),
        }
    }

    /// The packages that are required, in the order of their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.required.keys().map(String::as_str)
    }

    /// Versions that meet every requirement; `None` if there are none. Packages whose releases are not known are left
    /// out: what is required of them stands as it is.
    pub fn solve(&self) -> Option<Choice> {
        let mut choice = Choice::new();
        let mut names: Vec<&str> = self.names().filter(|name| !self.packs.releases_of(name).is_empty()).collect();
        // The most constrained first: a wrong choice there is found out at once.
        names.sort_by_key(|name| self.candidates(name).len());
        self.assign(&names, &mut choice).then_some(choice)
    }

    fn assign(&self, names: &[&str], choice: &mut Choice) -> bool {
        let Some((name, rest)) = names.split_first() else { return true };
        for version in self.candidates(name) {
            if self.objection(choice, name, &version).is_some() {
                continue;
            }
            choice.insert((*name).to_owned(), version);
            if self.assign(rest, choice) {
                return true;
            }
            choice.remove(*name);
        }
        false
    }

    /// The releases that are allowed: the installed one first, then the newest; pre-releases only where nothing else is.
    fn candidates(&self, name: &str) -> Vec<Version> {
        let demands = self.required.get(name).map_or(&[][..], Vec::as_slice);
        let fits = |version: &&Version| demands.iter().all(|demand| satisfies(version, &demand.range));
        let mut releases: Vec<&Version> = self.packs.releases_of(name).iter().filter(fits).collect();
        if releases.iter().any(|version| !version.any_prerelease()) {
            releases.retain(|version| !version.any_prerelease());
        }
        releases.sort_unstable_by(|a, b| b.cmp(a));
        let present = self.present.get(name).filter(fits);
        let public = present.map(|version| version.clone().without_local());
        let known = public.filter(|version| self.packs.releases_of(name).contains(version));
        let others = releases.into_iter().filter(|version| Some(*version) != known.as_ref()).cloned();
        known.iter().cloned().chain(others).collect()
    }

    /// Why `name` cannot be `version` beside what is chosen: a clause, or nothing.
    pub fn objection(&self, choice: &Choice, name: &str, version: &Version) -> Option<String> {
        let asks = self.demands_of(name, version).find_map(|(required, demand)| {
            let chosen = choice.get(&required)?;
            let unmet = !satisfies(chosen, &demand.range);
            unmet.then(|| format!("needs {required}{}, not {chosen}", plain(&demand.range)))
        });
        // A release that brings files of another package is not recommended, whether that one is there or not.
        let brings = |overlap: &&Overlap| {
            overlap.packages.first().is_some_and(|first| first == name)
                && overlap.last.as_deref().is_some_and(|last| last != name)
                && overlap.versions.contain(version)
        };
        let overlap = || Some(format!("is left out: {}", self.packs.overlaps.iter().find(brings)?.because));
        asks.or_else(overlap).or_else(|| {
            choice.iter().find_map(|(other, chosen)| {
                let unmet = |(required, demand): (String, Demand)| {
                    (required == name && !satisfies(version, &demand.range)).then(|| plain(&demand.range))
                };
                let range = self.demands_of(other, chosen).find_map(unmet)?;
                Some(format!("is not what {other} {chosen} needs, {range}"))
            })
        })
    }

    /// What this version of a package is known to need.
    pub fn demands_of(&self, name: &str, version: &Version) -> impl Iterator<Item = (String, Demand)> {
        let by = format!("{name} {version}");
        let extras = self.extras.get(name).map_or(&[][..], Vec::as_slice);
        let needs = self.packs.needs_of(name, version);
        let requirements: Vec<Requirement> = needs
            .flat_map(|needs| needs.requires.iter().filter_map(|need| need.of(version)))
            .filter(|requirement| self.machines.apply(requirement, extras))
            .collect();
        requirements.into_iter().map(move |requirement| {
            let range = required_range(&requirement).cloned().unwrap_or_default();
            (requirement.name.to_string(), Demand { by: by.clone(), range })
        })
    }

    /// A package with known releases that the chosen ones require and that has no version yet.
    pub fn implied(&self, choice: &Choice) -> Option<String> {
        let mut required =
            choice.iter().flat_map(|(name, version)| self.demands_of(name, version)).map(|(name, _)| name);
        required.find(|name| !choice.contains_key(name) && !self.packs.releases_of(name).is_empty())
    }

    /// Everything that the package and the chosen ones ask of `name`.
    pub fn demands_on(&self, choice: &Choice, name: &str) -> Vec<Demand> {
        let mut demands = self.required.get(name).cloned().unwrap_or_default();
        for (other, version) in choice {
            demands.extend(self.demands_of(other, version).filter(|(required, _)| required == name).map(|(_, d)| d));
        }
        demands
    }

    /// Why no release of `name` fits beside what is chosen: one line for each reason, newest releases first.
    pub fn why_not(&self, choice: &Choice, name: &str) -> Vec<String> {
        let mut runs: Vec<(String, Vec<Version>)> = Vec::new();
        let mut releases = self.packs.releases_of(name).to_vec();
        releases.sort_unstable_by(|a, b| b.cmp(a));
        for version in releases {
            let Some(reason) = self.objection(choice, name, &version) else { continue };
            match runs.last_mut().filter(|(last, _)| *last == reason) {
                Some((_, versions)) => versions.push(version),
                None => runs.push((reason, vec![version])),
            }
        }
        let line = |(reason, versions): (String, Vec<Version>)| match versions.as_slice() {
            [newest, .., oldest] => format!("{oldest} to {newest} {}", plural(&reason)),
            _ => format!("{} {reason}", versions[0]),
        };
        runs.into_iter().map(line).collect()
    }
}

/// `needs` of one release is `need` of several.
fn plural(reason: &str) -> String {
    match (reason.strip_prefix("needs "), reason.strip_prefix("is ")) {
        (Some(rest), _) => format!("need {rest}"),
        (_, Some(rest)) => format!("are {rest}"),
        _ => reason.to_owned(),
    }
}

/// `>=4.5.2,<5`, as pip writes it.
pub(super) fn plain(range: &VersionSpecifiers) -> String {
    range.to_string().replace(", ", ",")
}
