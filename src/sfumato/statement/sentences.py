"""The catalogue of sentences: all that a statement says in words, by id.

Guarantees that code, documents and translations mean the same sentence by the same id. A sentence is filled from public
values only: counts and names that may be published, never a figure of private records. What the author of a run adds
in own words has no id.

>>> render(Assumption("stopped_all_counted", {"rounds": 3, "planned": 5}))
'The run was stopped after 3 of 5 rounds. The cost is that of all planned rounds.'
>>> render(Assumption("stopped_all_counted", {"rounds": 3}))
Traceback (most recent call last):
...
sfumato._check.InputError: the sentence 'stopped_all_counted' needs a value for planned; give it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal

from sfumato._check import InputError
from sfumato._types import Assumption

BlockName = Literal["guarantee", "mechanism", "assumptions", "not_covered", "other_accounting", "answers"]


@dataclass(frozen=True)
class Sentence:
    """One sentence, or a few that belong together.

    Attributes:
        id: its name in files and documents; it stays when the text is improved.
        block: the part of the statement that it stands in; "answers" are those to `sfumato.statement.QUESTIONS`.
        text: with `{placeholders}` for public values, as `str.format` fills them.
        usual: of a condition that almost every run has: a few words that name it; "" for one to read in full.
    """

    id: str
    block: BlockName
    text: str
    usual: str = ""

    @property
    def placeholders(self) -> frozenset[str]:
        """The names of the values that it needs."""
        return frozenset(name for _, name, _, _ in Formatter().parse(self.text) if name)


_ALL = (
    # the guarantee
    Sentence(
        "membership", "guarantee", "At {fpr} false positives, any membership test finds at most {tpr} of members."
    ),
    Sentence("membership_all", "guarantee", "At {fpr} false positives, a membership test may find all members."),
    Sentence(
        "label_test",
        "guarantee",
        "At {fpr} false positives, any test for one label finds at most {tpr} of the examples that have it.",
    ),
    Sentence(
        "label_test_all",
        "guarantee",
        "At {fpr} false positives, a test for one label may find all examples that have it.",
    ),
    Sentence(
        "verdict_scale",
        "guarantee",
        "The verdict goes by the share found at {fpr} false positives (guessing finds {fpr}): {scale}.",
    ),
    Sentence("if_random", "guarantee", "The next sentence would hold with randomness from the operating system."),
    Sentence(
        "no_noise",
        "guarantee",
        "No noise was added: there is no differential privacy guarantee.",
    ),
    Sentence(
        "seeded_run",
        "guarantee",
        "Seeded: simulation only. Anyone who knows the seed can take the noise away, so no one is protected.",
    ),
    Sentence(
        "void_infinite",
        "guarantee",
        "No one is protected: epsilon is infinite. Treat what was released as if it were the data themselves.",
    ),
    Sentence(
        "void_ledger",
        "guarantee",
        "Do not rely on this statement: its ledger costs epsilon {epsilon} at the same delta, more than it states.",
    ),
    Sentence(
        "void_seeded",
        "guarantee",
        "No one is protected: the run was seeded. Anyone who knows the seed can take the noise away.",
    ),
    Sentence(
        "delta_too_large",
        "guarantee",
        "Warning: delta is too large: delta times the number of {units} is {expected}, and should be below {most:g}.",
    ),
    # the mechanism
    Sentence("randomness_os", "mechanism", "operating system's CSPRNG"),
    Sentence("randomness_seeded", "mechanism", "seeded: simulation only"),
    # what every run assumes
    Sentence(
        "public_settings",
        "assumptions",
        "The number of {units} ({population}) and everything in plan.json are public. Where the true number is "
        "private, a public number can be declared.",
        usual="public settings and size of the data",
    ),
    Sentence(
        "prepared_alone",
        "assumptions",
        "The records of one {unit} are assumed to follow from that {unit} alone. Nothing of others was mixed in before "
        "or while they were read. Nothing was scaled, filled in, encoded or chosen by figures of the private records, "
        "such as their mean and standard deviation. Take such figures from public records, or release them under noise "
        "and add their cost. No epsilon here covers them.",
        usual="records that were prepared one unit at a time",
    ),
    Sentence(
        "labels_prepared_alone",
        "assumptions",
        "What is given with a label is assumed not to follow from the labels of other rows. Inputs that were scaled, "
        "encoded or chosen by labels, such as by the mean label of a category, reveal them. No epsilon covers that.",
        usual="inputs that were prepared without the labels",
    ),
    Sentence(
        "rounding_floats",
        "assumptions",
        "Sums and noise are exact up to floating-point rounding.",
        usual="noise that is exact up to floating-point rounding",
    ),
    Sentence(
        "rounding_votes",
        "assumptions",
        "Votes and noise are whole numbers. Nothing is rounded where rounding could reveal anything.",
        usual="votes and noise in whole numbers",
    ),
    Sentence(
        "rounding_labels",
        "assumptions",
        "Whole random numbers decide the reports. No rounding makes any report cost more than stated.",
        usual="reports that are decided by whole random numbers",
    ),
    Sentence(
        "draw_secret",
        "assumptions",
        "A random draw decides which {units} take part at which step. This draw must stay secret, as the records must. "
        "Against anyone who knows it, the guarantee is weaker than stated.",
        usual="a secret draw of who takes part at which step",
    ),
    # what a run leaves out
    Sentence(
        "one_example",
        "not_covered",
        "Each example of the data set is covered alone. A person with several examples is covered for each of "
        "them, not for all together.",
    ),
    Sentence(
        "one_user",
        "not_covered",
        "A person is one user of the data set. A person who appears as several users is covered for each user alone.",
    ),
    Sentence(
        "one_unit",
        "not_covered",
        "Each {unit} is covered alone. A person behind several of them is covered for each one, not for all together.",
    ),
    Sentence(
        "one_run",
        "not_covered",
        "One run is counted. Other releases from the same records add their cost. So do other runs whose results "
        "served to choose settings, those that were thrown away included.",
    ),
    Sentence(
        "covers_model",
        "not_covered",
        "The model after every round, the plan and the ledger (the cost of each release) are covered. Metrics, "
        "evaluations on private data and checkpoints are not.",
    ),
    Sentence(
        "covers_votes",
        "not_covered",
        "The answers, which queries were asked, the student, the plan and the ledger (the cost of each release) are "
        "covered. The agents' models and ballots, what is measured on private data, and checkpoints are not.",
    ),
    Sentence(
        "covers_labels",
        "not_covered",
        "The randomised labels, the plan and the ledger (the cost of each release) are covered. Metrics and "
        "checkpoints are not.",
    ),
    Sentence(
        "covers_labels_and_model",
        "not_covered",
        "The model, the randomised labels, the plan and the ledger (the cost of each release) are covered. Metrics and "
        "checkpoints are not.",
    ),
    Sentence(
        "covers_synthesizer",
        "not_covered",
        "The synthesizer, all records that it generates, the tables, the autoencoder and the critic after every round, "
        "the plan and the ledger (the cost of each release) are covered. Metrics, evaluations on private data and "
        "checkpoints are not.",
    ),
    Sentence(
        "covers_clusters",
        "not_covered",
        "The chosen candidates, the noisy sums and numbers, the directions, the plan and the ledger (the cost of each "
        "release) are covered. The class centres, and the network that made them, are not.",
    ),
    Sentence(
        "operator",
        "not_covered",
        "What the people who ran it saw. The guarantee is about what leaves.",
    ),
    Sentence(
        "learned_of_all",
        "not_covered",
        "What is true of people in general. A model may reveal something about a person who never took part.",
    ),
    Sentence(
        "two_units",
        "not_covered",
        "Groups of units. Two units that are always in the data together are covered with epsilon {epsilon}, "
        "and with a larger delta where delta is positive.",
    ),
    Sentence(
        "nothing_covered",
        "not_covered",
        "Nothing is covered: neither the model, nor anything else that was computed from the records.",
    ),
    # the table of other accounting
    Sentence(
        "first_row",
        "other_accounting",
        "Only the first row is the guarantee. Do not quote the others as the guarantee: they count the same run by "
        "another method or for another unit.",
    ),
    # private clusters
    Sentence(
        "covers_silos",
        "not_covered",
        "The chosen candidates, the noisy sums and numbers, the directions, each silo's noisy update, the backbone "
        "after every round, the plan and the ledger (the cost of each release) are covered. Class centres, heads, "
        "metrics, evaluations on private data and checkpoints are not.",
    ),
    Sentence(
        "only_clusters_covered",
        "not_covered",
        "The clusters of the silos are covered by themselves. Neither the backbone nor anything else that was computed "
        "from the records is.",
    ),
    Sentence(
        "silos_backbone_unprotected",
        "guarantee",
        "The backbone was trained without noise, so there is no differential privacy guarantee for what leaves a silo "
        "as a whole. {clusters}.",
    ),
    Sentence(
        "silos_clusters_protected",
        "guarantee",
        "The clusters alone are covered: given the backbones that made them, all clusters of an identity's silo are "
        "({epsilon}, {delta})-differentially private for this identity, who comes or goes.",
    ),
    Sentence(
        "silos_clusters_unprotected",
        "guarantee",
        "What silos shared besides the backbone had no guarantee for an identity, either.",
    ),
    Sentence(
        "silos_shared_nothing",
        "guarantee",
        "Silos shared no clusters.",
    ),
    Sentence(
        "as_printed",
        "guarantee",
        "Nothing is proven for this algorithm as it is printed: whether a cap reaches the threshold, its size, and "
        "which centres are left out are released without noise. There is no differential privacy guarantee.",
    ),
    Sentence(
        "own_centres",
        "assumptions",
        "Each class centre follows from the pictures of its own identity, and from a network that is public or has a "
        "guarantee of its own. A row of a classifier that was trained on all identities is no such centre.",
    ),
    Sentence(
        "public_candidates",
        "assumptions",
        "The candidates, the projection, the radius and the threshold are public. None was chosen by looking at these "
        "identities.",
        usual="public candidates",
    ),
    Sentence(
        "silos_disjoint",
        "assumptions",
        "Each identity is in one of {count} silos, and pays for the releases of that one. The cost is that of the "
        "smallest silo, where an identity is drawn most often.",
    ),
    Sentence(
        "silos_overlap",
        "assumptions",
        "Each of {count} silos follows this plan for its own identities. Up to {silos} of them may hold the same "
        "person, and the cost counts all of these, each as that of the smallest silo, where an identity is drawn most "
        "often.",
    ),
    Sentence(
        "silos_stopped",
        "assumptions",
        "The run was stopped before its end, after {rounds} of {planned} rounds. The cost is that of all that left a "
        "silo by then. That was decided without looking at anything private; if released models decided it, the cost "
        "of all planned rounds holds.",
    ),
    Sentence(
        "silos_without_clusters",
        "assumptions",
        "No cluster could be used in {rounds} of {gatherings} releases: none was large enough, or all silos were "
        "offline. What they cost counts.",
    ),
    Sentence(
        "one_silo",
        "assumptions",
        "No person is an identity of more than one client. A person whom several clients hold is covered for each of "
        "them alone.",
    ),
    Sentence(
        "several_silos",
        "assumptions",
        "Up to {silos} clients may hold the same person, and each follows this plan. The cost counts all of them.",
    ),
    # training
    Sentence(
        "began_public",
        "assumptions",
        "The training may begin with given starting weights and buffers, and with inputs that norm layers were "
        "given as public. All that it began with is public or has a statement of its own. This statement does not "
        "count what this start reveals of the records.",
        usual="a start of the training that is public or has a statement of its own",
    ),
    Sentence(
        "training_part",
        "assumptions",
        "The choice of the training records did not depend on what the records hold. The noise does not cover the "
        "records kept for validation and test. Results measured on those records are private as they stand: no "
        "noise protects them.",
        usual="a choice of training records that ignores what they hold",
    ),
    Sentence(
        "clients_tried",
        "assumptions",
        "No client changes another client's contribution. Clients of the data were tried in two orders before the "
        "first round. Further clients were tried in rounds drawn at random. Such a trial misses what a model "
        "begins to keep or use only later or with other records. It misses what a model keeps in files, in shared "
        "memory or in other processes.",
        usual="clients whose contributions are independent, as far as trials show",
    ),
    Sentence(
        "examples_tried",
        "assumptions",
        "No example changes another example's gradient. Trials on rows of the data, before the first step, used "
        "batches of several sizes and two orders. Trials also ran while training: in the first step, in the last "
        "step and in others drawn at random. In these steps they ran wherever there were two examples at once. A "
        "trial misses coupling (one example acts on another) that begins only with untried data, in an untried "
        "batch or at an untried step. It misses coupling that turns gradients in large batches and keeps their "
        "norms and losses. It misses what a loop keeps after its inner loop. It misses what is kept in files, in "
        "shared memory or in other processes. It misses what a model draws from a random generator of its own.",
        usual="examples whose gradients are independent, as far as trials show",
    ),
    Sentence(
        "examples_tried_before",
        "assumptions",
        "No example changes another example's gradient. Trials on rows of the data, before the first step, used "
        "batches of several sizes and two orders. A trial misses coupling (one example acts on another) that "
        "begins only with untried data, in an untried batch or at an untried step. It misses coupling that turns "
        "gradients in large batches and keeps their norms and losses. It misses what a loop keeps after its inner "
        "loop. It misses what is kept in files, in shared memory or in other processes. It misses what a model "
        "draws from a random generator of its own.",
        usual="examples whose gradients are independent, as far as trials show",
    ),
    Sentence(
        "no_fresh_processes",
        "assumptions",
        "Fresh processes show what code keeps, in all places where it may keep it. No such comparison was "
        "possible here. Instead, this process tried two orders, after placeholders (stand-ins for records) had "
        "gone through. What the first {unit} leaves behind is assumed to change no other {unit}'s contribution.",
    ),
    Sentence(
        "no_fresh_processes_nor_placeholders",
        "assumptions",
        "Fresh processes show what code keeps, in all places where it may keep it. No such comparison was "
        "possible here. Instead, this process tried two orders. The code takes no placeholders (stand-ins for "
        "records), so none went through first. What the first {unit} leaves behind is assumed to change no other "
        "{unit}'s contribution.",
    ),
    Sentence(
        "some_untried",
        "assumptions",
        "Trials in fresh processes show what the code keeps of records. Some of these trials could not be made. "
        "The code raised an error there, for instance in a step that it had not reached, or it took too long. "
        "What the code keeps in such a case is assumed to change no other {unit}'s contribution.",
    ),
    Sentence(
        "virtual_clients",
        "assumptions",
        "Sampled users are assigned to virtual clients independently and uniformly. One user can move the clipped sum "
        "by twice the clip norm.",
    ),
    Sentence(
        "participation_public",
        "assumptions",
        "Who takes part in which round follows from the plan and from random numbers of the run, never from what the "
        "records hold. Participation is not hidden. The statement covers what one {unit} contributes, in as many "
        "rounds as the limits allow.",
    ),
    Sentence(
        "stopped_all_counted",
        "assumptions",
        "The run was stopped after {rounds} of {planned} rounds. The cost is that of all planned rounds.",
    ),
    Sentence(
        "stopped_early",
        "assumptions",
        "The run was stopped after {rounds} of {planned} rounds. That was decided without looking at anything private. "
        "If the released models decided it, the cost of all planned rounds holds. If losses or other metrics of "
        "private records decided it, no figure here covers what the choice reveals.",
    ),
    Sentence(
        "logged",
        "not_covered",
        "Losses, counts and times of the rounds were logged to {service}. They were computed without noise. Against "
        "those who can read that log, no figure here holds.",
    ),
    # single examples
    Sentence("classes_public", "assumptions", "The set of classes is public: the model has an output for each."),
    Sentence("loss_chosen", "assumptions", "The loss was chosen without looking at the records."),
    Sentence(
        "targets_unbounded",
        "assumptions",
        "The range of the targets is not assumed: whatever an example's target is, its gradient is clipped. How many "
        "numbers a target has is public.",
    ),
    Sentence(
        "inputs_public",
        "not_covered",
        "Inputs and their order are public, and so is every column but the label. Only the label of a row is hidden. "
        "Anyone who can infer it from the inputs knows it as before.",
    ),
    Sentence(
        "own_loop",
        "assumptions",
        "The user's own code is the loop around the private sum. It is assumed to compute the loss of an example "
        "from this example alone. This was tried, not proven. The trials used examples of the data, before the "
        "first step and now and then later, in the precision of the run. State of the loop that follows from "
        "examples breaks this assumption: running averages of losses, memory banks and other state. The statement "
        "does not cover what the loop prints, logs, measures or saves by itself. It covers no learning rate, stop "
        "or other change of the optimiser or its gradient that follows from any of these.",
    ),
    Sentence(
        "loop_rates",
        "assumptions",
        "The loop changed settings of the optimiser (its rate, for one) between steps. They are assumed to follow from "
        "the number of steps alone. No epsilon covers a rate that follows from losses or other figures of the records, "
        "which have no noise.",
    ),
    Sentence(
        "loop_drift",
        "assumptions",
        "At step {step} the loop gave other losses or gradients than at the opening of the run, for the same "
        "examples and weights. The statement assumes a schedule that follows from the number of steps or from "
        "released weights alone. If the change follows from examples (a mean of earlier losses, a memory bank), "
        "no bound on one example holds.",
    ),
    # users
    Sentence(
        "vocabulary_released",
        "assumptions",
        "The vocabulary is public, or was released by this run: the model has an output for each of its ids.",
    ),
    Sentence(
        "label_set_public",
        "assumptions",
        "The set of labels is public: heads have a row for each. Where labels are people, it reveals who may have "
        "taken part.",
    ),
    Sentence(
        "own_parameters",
        "assumptions",
        "Some parameters are each user's own. Every round rebuilds them from this user's own records. They begin with "
        "the same public values for everyone. The run releases them as everyone begins. Nothing of them leaves "
        "except in the one bounded vector of the shared parameters. So they cost nothing. The division of a "
        "user's records follows from these records alone, so it costs nothing either. The statement does not "
        "cover what a person is served with later: that is made of this person's own records.",
    ),
    Sentence(
        "own_parameters_counted",
        "assumptions",
        "Some parameters are each user's own. Every round rebuilds them from this user's own records. They begin with "
        "the same public values for everyone. The run releases them as everyone begins. Nothing of them leaves "
        "except in two things. The first is the one bounded vector of the shared parameters. The second is "
        "whether this vector is short, which a noisy count reveals of all users together. So they cost nothing. "
        "The division of a user's records follows from these records alone, so it costs nothing either. The "
        "statement does not cover what a person is served with later: that is made of this person's own records.",
    ),
    Sentence(
        "negatives_public",
        "assumptions",
        "The negatives ({examples:,} examples of {classes:,} classes, digest {digest}) are public. Each client trained "
        "with {per_client} of these classes, drawn without looking at any record. None of them is a training record, "
        "row by row. Whether they show a person who took part is not checked.",
    ),
    Sentence(
        "vocabulary_counted",
        "assumptions",
        "The way in which texts are divided into words is public. This run counted the vocabulary in the texts that "
        "were trained on, and the figures cover it.",
    ),
    Sentence(
        "no_copy_went_on",
        "assumptions",
        "No earlier copy of the run's folder went on. Rows of tables take their noise when they are read, so a copy "
        "that stops elsewhere would release the same sums with other noise.",
    ),
    Sentence(
        "rows_counted",
        "assumptions",
        "The number of rows of each table is public. This run counted which of them are read by the records that were "
        "trained on, and the figures cover it.",
    ),
    Sentence(
        "division_public",
        "assumptions",
        "The way in which texts are divided into words is public, and so is how many users there are.",
    ),
    # labels
    Sentence(
        "label_only",
        "not_covered",
        "Inputs, the number of rows and every column but the label are public, and so is the order of rows. Only the "
        "label of a row is hidden. Anyone who can infer it from the inputs knows it as before.",
    ),
    Sentence(
        "label_only_shuffled",
        "not_covered",
        "Inputs, the number of rows and every column but the label are public. Only the label of a row is hidden. "
        "Anyone who can infer it from the inputs knows it as before.",
    ),
    Sentence(
        "row_order",
        "assumptions",
        "The set of rows and their order do not follow from the labels. A test read the labels, to refuse rows "
        "where they do. That it passed is one bit, which epsilon does not count. For any labels, it passes for "
        "all but one in a million random orders.",
    ),
    Sentence(
        "rows_shuffled",
        "assumptions",
        "The set of rows does not follow from their labels. This run drew a random order and put the rows into "
        "it. So the rows have other places in other files. A column that counts the rows would bring their first "
        "order back. So would another copy of the rows in that order.",
    ),
    Sentence(
        "one_draw",
        "assumptions",
        "Each label is randomised once. Another draw from the same labels, for another place, costs its epsilon again.",
    ),
    Sentence(
        "draws_recorded",
        "assumptions",
        "Each release randomises each label anew. The statement counts this release and {count} earlier ones in "
        "the record of the table. The record finds a table by its labels in their order or by its rows. It misses"
        " a table in another folder, and one whose labels, rows and columns were all changed.",
    ),
    Sentence(
        "label_domain",
        "assumptions",
        "Classes, priors, groups and the range of the labels are public, or were released by this run.",
    ),
    # votes
    Sentence(
        "pool_public",
        "assumptions",
        "The pool, the weights that agents and student start from, and the settings are public. None of them was "
        "chosen by looking at the agents' records. The student learned from the released answers alone.",
    ),
    Sentence(
        "agents_alone",
        "assumptions",
        "Each agent trains on its own records, the public weights and the public pool alone. It leaves nothing but its "
        "ballot; its model is not released.",
    ),
    Sentence(
        "features_fixed",
        "assumptions",
        "The features are a fixed public function of one record. They were not trained, fitted or scaled on the "
        "agents' records.",
    ),
    Sentence(
        "agents_tried",
        "assumptions",
        "No agent changes another agent's ballot. Some agents were tried in two orders before the vote. Some "
        "ballots were cast before all others, and again after them. Such a trial misses what a module begins to "
        "keep or use only later or with other records. It misses what a module keeps in files, in shared memory "
        "or in other processes.",
        usual="agents whose ballots are independent, as far as trials show",
    ),
    Sentence(
        "clear_tally",
        "assumptions",
        "The votes are counted in the clear: the people who run the tally see each of them, and are trusted with them.",
    ),
    Sentence(
        "talliers_honest",
        "assumptions",
        "Of the {talliers} talliers at most {curious} share what they see, and all of them follow the protocol.",
    ),
    Sentence(
        "talliers_noise",
        "assumptions",
        "What outsiders see has the noise of all talliers. Its variance is {factor:.3g} times the variance that "
        "the figures count. The figures count the variance of {honest} honest talliers.",
    ),
    Sentence(
        "ballots_in_range",
        "assumptions",
        "Agents vote within range. The talliers check it for one-hot ballots only, and see no other.",
    ),
    Sentence(
        "talliers_here",
        "assumptions",
        "All talliers run on this machine, under one user who could put their shares together.",
    ),
    # what data sets assume
    Sentence(
        "classes_declared",
        "assumptions",
        "The set of classes was found in the records and declared public, as that of a benchmark is. A class that"
        " only one person has is not hidden.",
    ),
    Sentence(
        "model_built_before",
        "assumptions",
        "The model was built before the run. Everything that it has a place for (inputs, outputs, classes, items, "
        "words) is public. No figure here covers any part of the model that was read off the records.",
    ),
    Sentence(
        "examples_of_users",
        "not_covered",
        "The examples belong to users, and each example is covered alone. A user with several examples is covered"
        " for each of them, not for all together.",
    ),
    Sentence(
        "rows_of_user",
        "assumptions",
        "A user's contribution to a step is the gradient of the mean loss of the user's rows, clipped as one. Of more "
        "than {most:,} rows, {most:,} are chosen at random in each step.",
    ),
    Sentence(
        "selection_counted",
        "assumptions",
        "The run is a private selection: the best of a random number of trainings, {mean} on average. All of them are "
        "counted, as this one run. Their number stays secret. The records that the best one was chosen by are not "
        "covered.",
    ),
    Sentence(
        "covers_selected",
        "not_covered",
        "The model that was selected and its plan are covered. All that the trainings left besides is not.",
    ),
    Sentence("attributes_public", "assumptions", "What the {count:,} attributes are is public."),
    Sentence(
        "divided_by_position",
        "assumptions",
        "The statement is about the training part alone. The {things} were divided by their position in the whole"
        " collection. If one of them came or went, others could move between training and test.",
    ),
    Sentence(
        "vocabulary_file",
        "assumptions",
        "The vocabulary file {file} ({tokens:,} tokens) is assumed to be public: chosen without looking at the "
        "records.",
    ),
    Sentence(
        "vocabulary_public",
        "assumptions",
        "The vocabulary{file} ({tokens:,} tokens) is assumed to be public: chosen without looking at the records, or "
        "released by a run whose own statement comes on top.",
    ),
    Sentence(
        "tokenizer_public",
        "assumptions",
        "The tokenizer that was given is assumed to be public, and to look at one text at a time.",
    ),
    Sentence(
        "schema_public",
        "assumptions",
        "The schema ({parts}) is assumed to be public: declared without looking at the records.",
    ),
    Sentence(
        "items_public",
        "assumptions",
        "{catalogue} ({items:,} items) is assumed to be public: chosen without looking at who rated what.",
    ),
    Sentence(
        "ratings_public",
        "not_covered",
        "Who rated which item is public, and so is how many ratings there are: only their values are labels.",
    ),
    # health records
    Sentence(
        "ehr_schema_public",
        "assumptions",
        "The schema ({columns} columns, {categories:,} categories) is assumed to be public: declared without looking "
        "at the records.",
    ),
    Sentence(
        "ehr_schema_found",
        "not_covered",
        "The schema ({columns} columns, {categories:,} categories) was taken from the records: no guarantee covers it.",
    ),
    Sentence(
        "one_patient",
        "not_covered",
        "A patient is one id of the records. A patient who has several ids is covered for each of them alone.",
    ),
    Sentence(
        "one_record_of_patient",
        "not_covered",
        "The unit is one {unit} ({id}). A patient with several is covered for each of them alone. What all {unit}s of "
        "one patient have in common is covered less.",
    ),
    Sentence(
        "ehr_settings_public",
        "assumptions",
        "The number of {unit}s ({population:,}), the settings of the plan and the schema with its categories and "
        "ranges are assumed to be public. No epsilon covers what of them was decided by looking at the records.",
    ),
    Sentence(
        "first_visits",
        "assumptions",
        "Of each {unit}, the run learned from the first {visits} visits, up to {horizon:g} {time_unit}. It did "
        "not look at later ones.",
    ),
    Sentence(
        "noise_in_records",
        "assumptions",
        "Random numbers within a record (where a number lies in its interval, what is added to latent vectors) are not "
        "released.",
    ),
    Sentence(
        "ehr_stopped_early",
        "assumptions",
        "The run was stopped before its end. That was decided without looking at anything private.",
    ),
    # answers to the questions of a disclosure, by the question
    Sentence(
        "trust_operator",
        "answers",
        "The operator of the training sees the records, or each client's contribution, and is trusted. Noise is added "
        "to the sum, in one place.",
    ),
    Sentence(
        "trust_randomiser",
        "answers",
        "The party that randomises the labels sees them. Those who train on what was released need not be trusted.",
    ),
    Sentence(
        "released_model",
        "answers",
        "The model after every round, the ledger and the plan; all three are covered. Metrics, evaluations on private "
        "data and the folder checkpoint/ are not, and are marked as not private.",
    ),
    Sentence(
        "released_without_noise",
        "answers",
        "The model, the ledger and the plan. Nothing is covered, as no noise was added.",
    ),
    Sentence(
        "released_clusters",
        "answers",
        "The model, the silos' clusters, the ledger and the plan. Of these, the clusters are covered by themselves.",
    ),
    Sentence(
        "trust_silos",
        "answers",
        "Each silo sees the records of its own identities alone, and adds the noise before anything leaves it.",
    ),
    Sentence(
        "released_by_silos",
        "answers",
        "What each silo sends (its clusters and noisy updates), the model after every round, the ledger and the plan; "
        "all of them are covered. Metrics, evaluations on private data and the folder checkpoint/ are not, and are "
        "marked as not private.",
    ),
    Sentence(
        "released_directions",
        "answers",
        "The directions and noisy numbers of all clusters, also of those that are not used, the ledger and the plan; "
        "all of them are covered. The folder checkpoint/ is not, and is marked as not private.",
    ),
    Sentence(
        "released_answers",
        "answers",
        "The answers, which queries were asked, the student, the ledger and the plan; all of them are covered. The "
        "agents' models and ballots, and what was measured on private data, are not released.",
    ),
    Sentence("released_reports", "answers", "{files}; all are covered. Inputs are published as they are."),
    Sentence(
        "several_units", "answers", "{person} Whether a person {several} is not stated by the author of this run."
    ),
    Sentence(
        "contribution_bounded",
        "answers",
        "Each contribution is {bound} in every round that draws the unit. It counts as zero if it is not finite.",
    ),
    Sentence(
        "contribution_synthesizer",
        "answers",
        "Each {unit}'s counts are cut to a norm once. Each gradient is cut in every round that draws the {unit}, and "
        "counts as zero if it is not finite.",
    ),
    Sentence(
        "contribution_report",
        "answers",
        "One report of its own. Labels influence other rows only through a prior that was counted.",
    ),
    Sentence(
        "contribution_ballot",
        "answers",
        "Each agent has one ballot for each query. Its weight is bounded where it is made, and again where it is "
        "counted.",
    ),
    Sentence(
        "sampler_as_run",
        "answers",
        "Yes: the sampler that ran is the object that the cost was derived from.",
    ),
    Sentence(
        "samplers_as_run",
        "answers",
        "Yes: the samplers that ran are the objects that the cost was derived from.",
    ),
    Sentence("every_label_once", "answers", "Yes: every label is randomised exactly once."),
    Sentence("no_sampling", "answers", "Yes: there is no sampling."),
    Sentence(
        "tuning_not_stated",
        "answers",
        "One run is counted. Whether settings were chosen by other runs on the same records is not stated by the "
        "author of this run.",
    ),
    Sentence(
        "evaluation_not_covered",
        "answers",
        "What was measured on the training, validation or test records has no noise and is not covered. Whether it "
        "served to choose what is released is not stated by the author of this run.",
    ),
    Sentence(
        "other_releases_not_stated",
        "answers",
        "None is counted here. Whether there are others is not stated by the author of this run.",
    ),
    Sentence("other_releases_counted", "answers", "{count} earlier ones of the same labels are counted here."),
    Sentence(
        "key_deleted", "answers", "Yes: AES-256 under a key from the operating system, deleted when the run ends."
    ),
    Sentence(
        "key_closed",
        "answers",
        "Yes: AES-256 under a key from the operating system. The run was stopped before its end and then closed, which "
        "deleted the key.",
    ),
    Sentence(
        "key_on_disk",
        "answers",
        "Yes: AES-256 under a key from the operating system. The run was stopped and can be resumed, so checkpoint/ "
        "still holds the key. Anyone who has it can take the noise away; sfumato close deletes it.",
    ),
    Sentence(
        "key_seeded",
        "answers",
        "No: seeded, for simulation only. Anyone who knows the seed can take the noise away.",
    ),
    Sentence(
        "rounded_sums",
        "answers",
        "No: sums and noise are rounded to floating-point numbers. Attacks on their last bits (Mironov 2012) are not "
        "ruled out.",
    ),
    Sentence(
        "exact_reports",
        "answers",
        "Yes: reports are decided by thresholds on whole random numbers, whose exact ratio never exceeds e^epsilon. A "
        "counted prior has noise that is sampled exactly.",
    ),
    Sentence("exact_votes", "answers", "Yes: votes and noise are whole numbers, and the noise is sampled exactly."),
    Sentence(
        "verified_by_ledger",
        "answers",
        "ledger.jsonl holds every release in a chain of hashes that ends with the digests of the statement, the plan "
        "and the model. sfumato ledger verify checks it, and sfumato ledger show accounts it anew. The answers to "
        "these questions can be added to later and are not under the statement's digest. That the code ran as it "
        "stands has to be believed.",
    ),
    Sentence(
        "verified_by_nothing",
        "answers",
        "Nothing: the run was kept in memory, without a ledger. That the code ran as it stands has to be believed.",
    ),
    Sentence("verified_no_claim", "answers", "That no guarantee is claimed."),
)
SENTENCES: dict[str, Sentence] = {sentence.id: sentence for sentence in _ALL}
"""All sentences, by id."""


class RenderedSentence(str):
    """A sentence as a statement has it: text that knows where it comes from.

    Attributes:
        id: in `SENTENCES`; "" for the author's own words.
        values: what it was filled with.
    """

    id: str
    values: Mapping[str, Any]

    def __new__(cls, text: str, id: str = "", values: Mapping[str, Any] | None = None) -> "RenderedSentence":
        said = super().__new__(cls, text)
        said.id, said.values = id, dict(values or {})
        return said

    @property
    def sentence(self) -> Sentence | None:
        """Its entry in the catalogue; None for the author's own words."""
        return SENTENCES.get(self.id)

    def to_json(self) -> dict[str, Any]:
        """Id, values and text; the text alone for the author's own words."""
        return {"id": self.id, "values": dict(self.values), "text": str(self)} if self.id else {"text": str(self)}

    @classmethod
    def from_json(cls, value: object) -> "RenderedSentence":
        """What `to_json` wrote: the text as it was written, also where this version words the sentence otherwise.

        Raises:
            InputError: it is of another form, its id is unknown, or a value is missing.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
            raise InputError(f"a sentence must be {{id, values, text}}, or text alone, got {value!r:.80}")
        if set(value) == {"text"}:
            return cls(value["text"])
        if set(value) != {"id", "values", "text"} or not isinstance(value["values"], Mapping):
            raise InputError(f"a sentence must be {{id, values, text}}, or text alone, got {value!r:.80}")
        if not isinstance(value["id"], str) or value["id"] not in SENTENCES:
            raise InputError(f"there is no sentence {value['id']!r:.80}; read the file with the version that wrote it")
        said = render(Assumption(value["id"], value["values"]))
        return cls(value["text"], said.id, said.values)


def render(assumption: Assumption | str) -> RenderedSentence:
    """The sentence of an assumption; text that is no sentence of the catalogue stays as it is.

    Raises:
        InputError: the catalogue has no such id, a placeholder has no value, or a value no placeholder.
    """
    if isinstance(assumption, RenderedSentence):
        return assumption
    if isinstance(assumption, str):
        return RenderedSentence(assumption, _FIXED.get(assumption, ""))
    if not isinstance(assumption.id, str) or assumption.id not in SENTENCES:
        raise InputError(f"there is no sentence {assumption.id!r:.80}; see sfumato.statement.sentences for the ids")
    sentence, given = SENTENCES[assumption.id], frozenset(assumption.values)
    if missing := sorted(sentence.placeholders - given):
        raise InputError(f"the sentence {sentence.id!r} needs a value for {missing[0]}; give it")
    if unused := sorted(map(str, given - sentence.placeholders)):
        raise InputError(f"the sentence {sentence.id!r} takes no value {unused[0]!r:.80}; leave it out")
    for name, value in assumption.values.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(f"{name} of the sentence {sentence.id!r} must be text or a number, got {value!r:.80}")
    try:
        text = sentence.text.format(**assumption.values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"the sentence {sentence.id!r} cannot hold these values: {error!s:.200}") from None
    return RenderedSentence(text, sentence.id, assumption.values)


_FIXED = {sentence.text: sentence.id for sentence in _ALL if not sentence.placeholders}
