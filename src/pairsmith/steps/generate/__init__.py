"""The generate route (DINO): instructions in, labelled pairs or texts out."""
