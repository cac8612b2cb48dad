from pairsmith.metrics.entities import entity_f1


def test_f1_counts_whole_entities_of_the_right_type():
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert entity_f1(gold, gold) == 100.0
    # One of two found, and one found of two: half a name is none.
    assert entity_f1(gold, [["B-PER", "O", "O", "B-LOC"]]) == 50.0
    assert entity_f1(gold, [["O", "O", "O", "O"]]) == 0.0
