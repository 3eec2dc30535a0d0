# words.pl LIST FILE... prints each line of the files that uses a word of the list, and what to write
# instead. It finds words in text and as parts of snake_case and camelCase names.
use strict;
use warnings;

my $list = shift @ARGV;
my (@rules, @first);
open my $in, '<', $list or die "$list: $!\n";
while (<$in>) {
	chomp;
	next if /^#/;
	my ($words, $instead) = /^(.+?): (.+)$/ or die "$list: $_: write WORD, WORD: INSTEAD\n";
	my $any = join '|', map { pattern($_) } split /, /, $words;
	push @rules, [ qr/$any/, $instead ];
	push @first, map { (split / /)[0] } split /, /, $words;
}
close $in;
my $quick = join '|', @first;    # most lines have none of these, whatever their case
$quick = qr/$quick/i;

# pattern matches a word in lower case, with a capital, in capitals, and as a part of a name. Several
# words stand apart or together.
sub pattern {
	my ($first, @others) = split / /, shift;
	my ($letter, $rest) = (substr($first, 0, 1), substr($first, 1));
	my $later = join '', map { my $o = $_; '(?:[ _-]' . $o . '|' . ucfirst($o) . ')' } @others;
	my $shouted = join '[ _-]', map { uc } $first, @others;
	return "(?:(?<![A-Za-z])[$letter\U$letter\E]|(?<=[a-z0-9])\U$letter\E)$rest$later(?![a-z])|(?<![A-Za-z])$shouted(?![A-Za-z])";
}

my $found = 0;
for my $file (@ARGV) {
	open my $text, '<', $file or next;
	while (my $line = <$text>) {
		next unless $line =~ $quick;
		next if $file eq 'CHANGELOG.md' && $line =~ /^\|/;    # the table of new names
		$line =~ s/\bmod tidy\b|\bSetLinger\b|"Rewind"//g;   # names of Go's and SQLite's
		for my $rule (@rules) {
			next unless $line =~ /($rule->[0])/;
			print "$file:$.: \"$1\": write $rule->[1]\n";
			$found = 1;
		}
	}
	close $text;
}
exit $found;
